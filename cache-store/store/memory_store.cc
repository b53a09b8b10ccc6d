#include "cache-store/store/memory_store.h"

#include <array>
#include <map>
#include <mutex>

namespace kiln::store {
namespace {

class MemoryStore final : public KvStore {
 public:
  KvProperties properties() const override { return {.durable = false, .exact_leases = true}; }

  Result<std::optional<Bytes>> Get(Space space, std::string_view key) const override {
    const std::lock_guard lock(mutex_);
    const Map& map = spaces_[static_cast<size_t>(space)];
    const auto entry = map.find(key);
    if (entry == map.end()) return std::optional<Bytes>();
    return std::optional<Bytes>(entry->second);
  }

  Status Write(const KvBatch& batch) override {
    const std::lock_guard lock(mutex_);
    for (const KvBatch::Operation& operation : batch.operations()) {
      Map& map = spaces_[static_cast<size_t>(operation.space)];
      if (operation.value)
        map.insert_or_assign(operation.key, *operation.value);
      else
        map.erase(operation.key);
    }
    return {};
  }

  Status Sync() override { return {}; }

  Status Scan(Space space, std::string_view prefix, const Visitor& visit) const override {
    const std::lock_guard lock(mutex_);
    const Map& map = spaces_[static_cast<size_t>(space)];
    for (auto entry = map.lower_bound(prefix); entry != map.end() && entry->first.starts_with(prefix); ++entry)
      if (!visit(entry->first, entry->second)) break;
    return {};
  }

 private:
  using Map = std::map<std::string, Bytes, std::less<>>;
  mutable std::mutex mutex_;
  std::array<Map, kSpaceCount> spaces_;
};

}  // namespace

std::unique_ptr<KvStore> MakeMemoryStore() {
  return std::make_unique<MemoryStore>();
}

}  // namespace kiln::store

// KvStore: an ordered key-value store with spaces and atomic batches, and what a backend promises.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/result.h"

namespace kiln::store {

enum class Space : uint8_t {
#define KILN_SPACE(value, name, text, doc) k##name = value,
#include "cache-store/store/spaces.def"
#undef KILN_SPACE
};
inline constexpr int kSpaceCount = 0
#define KILN_SPACE(value, name, text, doc) +1
#include "cache-store/store/spaces.def"
#undef KILN_SPACE
    ;
std::string_view SpaceName(Space space);

struct KvProperties {
  bool durable = false;       // synced writes survive the end of the process and of the machine
  bool exact_leases = false;  // one writer at a time sees all earlier writes, so a lease is never granted twice
};

// Puts and deletes that happen all or not at all. The last operation on a key wins.
class KvBatch {
 public:
  struct Operation {
    Space space;
    std::string key;
    std::optional<Bytes> value;  // nothing: delete
  };

  void Put(Space space, std::string_view key, Bytes value) {
    operations_.push_back({space, std::string(key), std::move(value)});
  }
  void Delete(Space space, std::string_view key) { operations_.push_back({space, std::string(key), std::nullopt}); }
  const std::vector<Operation>& operations() const { return operations_; }
  bool empty() const { return operations_.empty(); }

 private:
  std::vector<Operation> operations_;
};

// Thread-safe. Keys are compared as unsigned bytes. Errors: IoError, ResourceExhausted (disk full),
// IntegrityFailure (what is stored there is damaged; it can be deleted and written over).
class KvStore {
 public:
  // Returns false to stop the scan.
  using Visitor = std::function<bool(std::string_view key, std::span<const uint8_t> value)>;

  virtual ~KvStore() = default;
  virtual KvProperties properties() const = 0;
  virtual Result<std::optional<Bytes>> Get(Space space, std::string_view key) const = 0;
  // Survives the end of this process from its return on; the end of the machine, on durable backends, from the next
  // Sync on.
  virtual Status Write(const KvBatch& batch) = 0;
  // Returns when all earlier writes are on the disk. May take long; does not hold up reads and writes.
  virtual Status Sync() = 0;
  // All keys that start with `prefix`, in order. Sees one state of the store; the visitor must not write to it.
  virtual Status Scan(Space space, std::string_view prefix, const Visitor& visit) const = 0;
};

// "rocksdb:PATH" or "memory:". InvalidArgument for anything else.
Result<std::unique_ptr<KvStore>> OpenKvStore(std::string_view address);

}  // namespace kiln::store

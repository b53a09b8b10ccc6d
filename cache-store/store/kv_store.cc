#include "cache-store/store/kv_store.h"

#include "cache-store/store/memory_store.h"
#include "cache-store/store/rocksdb_store.h"

namespace kiln::store {

std::string_view SpaceName(Space space) {
  switch (space) {
#define KILN_SPACE(value, name, text, doc) \
  case Space::k##name:                     \
    return text;
#include "cache-store/store/spaces.def"
#undef KILN_SPACE
  }
  return "unknown";
}

Result<std::unique_ptr<KvStore>> OpenKvStore(std::string_view address) {
  if (address == "memory:") return MakeMemoryStore();
  constexpr std::string_view kRocksDb = "rocksdb:";
  if (address.starts_with(kRocksDb) && address.size() > kRocksDb.size())
    return OpenRocksDbStore(std::string(address.substr(kRocksDb.size())));
  return Fail(ErrorCode::kInvalidArgument, "store '" + std::string(address) + "' is neither rocksdb:PATH nor memory:");
}

}  // namespace kiln::store

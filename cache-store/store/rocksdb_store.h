// The `rocksdb:PATH` backend: one column family per space, one process at a time.
#pragma once

#include <memory>
#include <string>

#include "cache-store/store/kv_store.h"

namespace kiln::store {

// Creates the database if the path is absent. Busy when another process has it open.
Result<std::unique_ptr<KvStore>> OpenRocksDbStore(const std::string& path);

}  // namespace kiln::store

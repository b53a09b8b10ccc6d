// The `memory:` backend: for tests, simulation and throw-away caches.
#pragma once

#include <memory>

#include "cache-store/store/kv_store.h"

namespace kiln::store {

std::unique_ptr<KvStore> MakeMemoryStore();

}  // namespace kiln::store

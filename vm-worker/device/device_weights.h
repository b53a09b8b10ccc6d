// DeviceWeights: what plans read of a model and never write, on a device once, however many plans read it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "vm-worker/device/device.h"

namespace kiln {

// Thread-safe. A copy lives as long as somebody holds it.
class DeviceWeights {
 public:
  explicit DeviceWeights(CudaDevice& device) : device_(device) {}
  // Host memory with the contents, valid until Get returns.
  struct Contents {
    const void* data = nullptr;
    int64_t bytes = 0;
    std::shared_ptr<const void> holder;
  };
  // The copy of what `key` names while `owner` lives (keys hold addresses: those of an owner that is gone mean nothing
  // to another); null: for ever. `make` is asked for the contents only where there is no copy. Errors of `make`;
  // ResourceExhausted; Unavailable.
  Result<std::shared_ptr<const DeviceBlock>> Get(const Digest& key, const std::shared_ptr<const void>& owner,
                                                 MemoryUse use, const std::function<Result<Contents>()>& make);

 private:
  std::shared_ptr<const DeviceBlock> Find(const Digest& key, const std::shared_ptr<const void>& owner);

  CudaDevice& device_;
  struct Entry {
    std::weak_ptr<const DeviceBlock> block;
    std::weak_ptr<const void> owner;
  };
  std::mutex mutex_;  // guards copies_
  std::unordered_map<Digest, Entry, DigestHash> copies_;
};

}  // namespace kiln

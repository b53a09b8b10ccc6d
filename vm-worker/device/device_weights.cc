#include "vm-worker/device/device_weights.h"

namespace kiln {

std::shared_ptr<const DeviceBlock> DeviceWeights::Find(const Digest& key, const std::shared_ptr<const void>& owner) {
  std::lock_guard lock(mutex_);
  const auto it = copies_.find(key);
  if (it == copies_.end() || it->second.owner.owner_before(owner) ||
      std::weak_ptr<const void>(owner).owner_before(it->second.owner))
    return nullptr;
  return it->second.block.lock();
}

Result<std::shared_ptr<const DeviceBlock>> DeviceWeights::Get(const Digest& key,
                                                              const std::shared_ptr<const void>& owner, MemoryUse use,
                                                              const std::function<Result<Contents>()>& make) {
  if (auto found = Find(key, owner)) return found;
  ASSIGN_OR_RETURN(const Contents contents, make());
  ASSIGN_OR_RETURN(DeviceBlock block, device_.Allocate(use, contents.bytes, WithoutRoom::kGoWithout));
  RETURN_IF_ERROR(device_.Upload(block.address(), contents.data, contents.bytes));
  auto copy = std::make_shared<const DeviceBlock>(std::move(block));
  std::lock_guard lock(mutex_);
  std::erase_if(copies_, [](const auto& entry) { return entry.second.block.expired(); });
  copies_[key] = {copy, owner};
  return copy;
}

}  // namespace kiln

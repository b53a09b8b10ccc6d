#include "vm-worker/device/kernel_images.h"

#include "common/artifact/kernel_blob.h"

namespace kiln {

Result<std::shared_ptr<const KernelImages>> VerifyImages(std::span<const KernelId> ids, std::vector<Bytes> blobs,
                                                         Target device) {
  if (ids.size() != blobs.size())
    return Fail(ErrorCode::kInvalidArgument, "plan names " + std::to_string(ids.size()) + " kernels, but " +
                                                 std::to_string(blobs.size()) + " were given");
  for (size_t i = 0; i < ids.size(); ++i) {
    if (HashBytes(blobs[i]) != ids[i])
      return Fail(ErrorCode::kIntegrityFailure,
                  "kernel " + ids[i].ShortHex() + " does not have the contents its id names");
    ASSIGN_OR_RETURN(const KernelBlobView view, ParseKernelBlob(blobs[i]));
    if (!view.launch || !CanRun(device, view.target))
      return Fail(ErrorCode::kTargetMismatch, "kernel is for " + std::string(InfoOf(view.target).name) +
                                                  ", this device runs at most " + std::string(InfoOf(device).name));
  }
  auto images = std::make_shared<KernelImages>();
  images->ids.assign(ids.begin(), ids.end());
  images->blobs = std::move(blobs);
  return images;
}

}  // namespace kiln

// KernelImages: kernels of a plan for a device, verified and not yet loaded.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "common/artifact/plan.h"
#include "common/artifact/target.h"
#include "common/base/bytes.h"

namespace kiln {

// Kernels' bytes as they were fetched, in the order of the plan; each was found to hash to its id.
struct KernelImages {
  std::vector<KernelId> ids;
  std::vector<Bytes> blobs;
};
// IntegrityFailure: a blob is not what its id names, or no kernel; TargetMismatch: not for a device whose best target
// is `device`.
Result<std::shared_ptr<const KernelImages>> VerifyImages(std::span<const KernelId> ids, std::vector<Bytes> blobs,
                                                         Target device);

}  // namespace kiln

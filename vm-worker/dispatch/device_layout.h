// DeviceLayout: where a device plan's values lie on both sides at one set of symbol values, and when they go from one
// side to the other. Kernels work on the device, reference steps on the host; what both touch has a place on each.
#pragma once

#include <cstdint>
#include <vector>

#include "vm-worker/dispatch/evaluated_plan.h"

namespace kiln {

// Places on a device are multiples of so many bytes, as its own allocations are.
inline constexpr int64_t kDeviceAlignment = 256;

// What a run does, in order.
struct DeviceAction {
  enum class Kind : uint8_t {
    kUpload,    // of storage `index`, all of it
    kDownload,  // the same
    kWait,      // for what was begun, kernels or copies: before copies, and before the host reads what was copied
    kLaunch,    // kernel step `index` of the plan
    kReference  // reference step `index` of the plan
  };
  static constexpr int32_t kForCopies = 0, kForKernels = 1;  // index of kWait
  Kind kind;
  int32_t index;
};

struct DeviceLayout {
  // Inputs, then outputs, then buffers; weights and packed ones have places of their own.
  struct Storage {
    int64_t bytes = 0;
    int64_t device_offset = -1;  // in the lane's arena; -1: no kernel touches it
    int64_t host_offset = -1;    // of a buffer in the host's arena; -1: no reference step touches it
  };
  std::vector<Storage> storages;
  std::vector<DeviceAction> actions;
  int64_t device_bytes = 0, host_bytes = 0;
  // Between storages on the device, where canaries were asked for: pieces of the arena that nobody may write.
  struct Gap {
    int64_t offset, bytes;
  };
  std::vector<Gap> gaps;
};

// With `canaries` nothing shares its place with another and everything has gaps around it. LimitExceeded names a size
// that no tensor has.
Result<DeviceLayout> LayOutOnDevice(const LinkedPlan& linked, const EvaluatedPlan& evaluated, bool canaries);
// The index in `storages` of what a value lies in; -1: of weights and packed ones.
int32_t StorageIndex(const LinkedPlan& linked, const EvaluatedValue& value);

}  // namespace kiln

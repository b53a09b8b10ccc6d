// The worker's device, as --device asks for it.
#pragma once

#include <memory>
#include <string>

#include "vm-worker/device/device.h"

namespace kiln {

struct OpenedDevice {
  std::unique_ptr<CudaDevice> device;  // null: plans run on the processor
  DeviceState state = DeviceState::kOff;
};

// `wish`: "cpu" (none); "auto" (the first one, if there is one: otherwise the log says why not, and the worker runs on
// the processor); "cuda:N" (that one: an error where it cannot be had, so that a machine whose device is broken is
// noticed). `memory_bytes` as in CudaDevice::Options. InvalidArgument, or what CudaDevice::Open says.
Result<OpenedDevice> OpenDevice(const std::string& wish, int64_t memory_bytes);

}  // namespace kiln

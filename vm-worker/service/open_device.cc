#include "vm-worker/service/open_device.h"

#include <spdlog/spdlog.h>

#include <charconv>

namespace kiln {
namespace {

constexpr std::string_view kPrefix = "cuda:";

Result<int> OrdinalOf(const std::string& wish) {
  int ordinal = -1;
  const char* end = wish.data() + wish.size();
  if (wish.starts_with(kPrefix))
    if (const auto [at, error] = std::from_chars(wish.data() + kPrefix.size(), end, ordinal);
        error == std::errc() && at == end && ordinal >= 0)
      return ordinal;
  return Fail(ErrorCode::kInvalidArgument, "--device takes cpu, auto or cuda:N, not \"" + wish + "\"");
}

}  // namespace

Result<OpenedDevice> OpenDevice(const std::string& wish, int64_t memory_bytes) {
  OpenedDevice opened;
  if (wish == "cpu") return opened;
  CudaDevice::Options options;
  options.memory_bytes = memory_bytes;
  const bool any = wish == "auto";
  if (!any) {
    ASSIGN_OR_RETURN(options.ordinal, OrdinalOf(wish));
  }
  auto device = CudaDevice::Open(options, opened.state);
  if (device.has_value()) {
    opened.device = std::move(*device);
    spdlog::info("device {}; plans may hold {} bytes of its memory", opened.device->Text(),
                 opened.device->budget().limit());
    return opened;
  }
  if (!any)
    return Fail(device.error().code,
                "--device " + wish + ": " + device.error().message + " (--device auto goes on without a device)");
  spdlog::info("no device ({}): {}; plans run on the processor", DeviceStateText(opened.state), device.error().message);
  return opened;
}

}  // namespace kiln

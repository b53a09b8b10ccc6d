#include "common/artifact/kernel_blob.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "common/artifact/kernel_abi.h"
#include "common/base/check.h"
#include "common/base/limits.h"

namespace kiln {

namespace {

constexpr char kMagic[] = "KILNKRN1";  // eight characters
constexpr size_t kAbiAt = 8, kTargetAt = 12, kEntryAt = 16, kSizeAt = 20;
constexpr size_t kThreadsAt = 24, kItemsAt = 28, kSharedAt = 32, kPointersAt = 36, kDimsAt = 40, kDriverAt = 44;
constexpr size_t kReservedAt = 24, kDeviceReservedAt = 48;

void PutU32(std::vector<uint8_t>& bytes, size_t at, uint32_t value) {
  for (size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<uint8_t>(value >> (8 * i));
}

uint32_t GetU32(std::span<const uint8_t> bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= static_cast<uint32_t>(bytes[at + i]) << (8 * i);
  return value;
}

std::vector<uint8_t> Blob(Target target, uint32_t entry_offset_in_code, std::span<const uint8_t> code) {
  std::vector<uint8_t> bytes(kKernelHeaderBytes + code.size(), 0);
  std::memcpy(bytes.data(), kMagic, 8);
  PutU32(bytes, kAbiAt, KILN_KERNEL_ABI);
  PutU32(bytes, kTargetAt, static_cast<uint32_t>(target));
  PutU32(bytes, kEntryAt, static_cast<uint32_t>(kKernelHeaderBytes) + entry_offset_in_code);
  PutU32(bytes, kSizeAt, static_cast<uint32_t>(kKernelHeaderBytes + code.size()));
  std::copy(code.begin(), code.end(), bytes.begin() + kKernelHeaderBytes);
  return bytes;
}

Status CheckLaunch(const DeviceLaunch& launch, uint32_t image_offset) {
  if (image_offset != kKernelHeaderBytes)
    return Fail(ErrorCode::kMalformed, "a device's kernel has its image at byte " + std::to_string(image_offset) +
                                           ", not behind its header at 64");
  if (launch.threads < kWarpThreads || launch.threads > kBlockThreadsMax || launch.threads % kWarpThreads != 0)
    return Fail(ErrorCode::kMalformed, "kernel asks for " + std::to_string(launch.threads) +
                                           " threads per block; it takes a multiple of 32 up to 1024");
  if (launch.items_per_block == 0) return Fail(ErrorCode::kMalformed, "kernel has no items per block");
  if (launch.shared_bytes > kDeviceSharedBytesMax)
    return Fail(ErrorCode::kLimitExceeded, "kernel asks for " + std::to_string(launch.shared_bytes) +
                                               " bytes of shared memory; a block has at most " +
                                               std::to_string(kDeviceSharedBytesMax));
  if (launch.pointers > static_cast<uint32_t>(limits::kSpecPointersMax) ||
      launch.dims > static_cast<uint32_t>(limits::kSpecArgumentsMax) ||
      DeviceParameterBytes(launch.pointers, launch.dims) > kDeviceParameterBytesMax)
    return Fail(ErrorCode::kLimitExceeded, "kernel takes " + std::to_string(launch.pointers) + " pointers and " +
                                               std::to_string(launch.dims) + " dims; a launch has " +
                                               std::to_string(kDeviceParameterBytesMax) + " bytes of parameters");
  if (launch.driver_version == 0) return Fail(ErrorCode::kMalformed, "kernel names no version of the driver");
  return {};
}

Result<DeviceLaunch> LaunchOf(std::span<const uint8_t> bytes, uint32_t image_offset) {
  const DeviceLaunch launch{GetU32(bytes, kThreadsAt),  GetU32(bytes, kItemsAt), GetU32(bytes, kSharedAt),
                            GetU32(bytes, kPointersAt), GetU32(bytes, kDimsAt),  GetU32(bytes, kDriverAt)};
  RETURN_IF_ERROR(CheckLaunch(launch, image_offset));
  return launch;
}

}  // namespace

std::vector<uint8_t> BuildKernelBlob(Target target, uint32_t entry_offset_in_code, std::span<const uint8_t> code) {
  KILN_CHECK(!InfoOf(target).is_device());
  return Blob(target, entry_offset_in_code, code);
}

std::vector<uint8_t> BuildDeviceBlob(Target target, const DeviceLaunch& launch, std::span<const uint8_t> image) {
  KILN_CHECK(InfoOf(target).is_device());
  std::vector<uint8_t> bytes = Blob(target, 0, image);
  PutU32(bytes, kThreadsAt, launch.threads);
  PutU32(bytes, kItemsAt, launch.items_per_block);
  PutU32(bytes, kSharedAt, launch.shared_bytes);
  PutU32(bytes, kPointersAt, launch.pointers);
  PutU32(bytes, kDimsAt, launch.dims);
  PutU32(bytes, kDriverAt, launch.driver_version);
  return bytes;
}

Result<KernelBlobView> ParseKernelBlob(std::span<const uint8_t> bytes) {
  if (bytes.size() <= kKernelHeaderBytes)
    return Fail(ErrorCode::kMalformed,
                "kernel has " + std::to_string(bytes.size()) + " bytes; its header alone has 64");
  if (bytes.size() > limits::kKernelBlobBytesMax)
    return Fail(ErrorCode::kLimitExceeded, "kernel has " + std::to_string(bytes.size()) + " bytes; the limit is " +
                                               std::to_string(limits::kKernelBlobBytesMax));
  if (std::memcmp(bytes.data(), kMagic, 8) != 0)
    return Fail(ErrorCode::kMalformed, "kernel does not start with KILNKRN1");
  const uint32_t abi = GetU32(bytes, kAbiAt), number = GetU32(bytes, kTargetAt), entry = GetU32(bytes, kEntryAt);
  if (abi != KILN_KERNEL_ABI)
    return Fail(ErrorCode::kTargetMismatch, "kernel has ABI " + std::to_string(abi) + "; this build runs ABI " +
                                                std::to_string(KILN_KERNEL_ABI) + "; compile it again");
  if (GetU32(bytes, kSizeAt) != bytes.size())
    return Fail(ErrorCode::kMalformed, "kernel says it has " + std::to_string(GetU32(bytes, kSizeAt)) +
                                           " bytes, but has " + std::to_string(bytes.size()));
  const std::optional<Target> target = TargetFromNumber(number);
  if (!target)
    return Fail(ErrorCode::kTargetMismatch,
                "kernel is for target number " + std::to_string(number) + ", which this build does not know");
  const bool device = InfoOf(*target).is_device();
  for (size_t i = device ? kDeviceReservedAt : kReservedAt; i < kKernelHeaderBytes; ++i)
    if (bytes[i] != 0) return Fail(ErrorCode::kMalformed, "kernel has a reserved byte set at " + std::to_string(i));
  if (entry < kKernelHeaderBytes || entry >= bytes.size())
    return Fail(ErrorCode::kMalformed, "kernel's entry " + std::to_string(entry) + " lies outside its code");
  KernelBlobView view{*target, abi, entry, bytes, {}};
  if (device) {
    ASSIGN_OR_RETURN(view.launch, LaunchOf(bytes, entry));
  }
  return view;
}

}  // namespace kiln

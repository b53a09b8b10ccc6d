#include "common/artifact/kernel_blob.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "common/artifact/kernel_abi.h"
#include "common/base/limits.h"

namespace kiln {

namespace {

constexpr char kMagic[] = "KILNKRN1";  // eight characters
constexpr size_t kAbiAt = 8, kTargetAt = 12, kEntryAt = 16, kSizeAt = 20, kReservedAt = 24;

void PutU32(std::vector<uint8_t>& bytes, size_t at, uint32_t value) {
  for (size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<uint8_t>(value >> (8 * i));
}

uint32_t GetU32(std::span<const uint8_t> bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= static_cast<uint32_t>(bytes[at + i]) << (8 * i);
  return value;
}

}  // namespace

std::vector<uint8_t> BuildKernelBlob(Target target, uint32_t entry_offset_in_code, std::span<const uint8_t> code) {
  std::vector<uint8_t> bytes(kKernelHeaderBytes + code.size(), 0);
  std::memcpy(bytes.data(), kMagic, 8);
  PutU32(bytes, kAbiAt, KILN_KERNEL_ABI);
  PutU32(bytes, kTargetAt, static_cast<uint32_t>(target));
  PutU32(bytes, kEntryAt, static_cast<uint32_t>(kKernelHeaderBytes) + entry_offset_in_code);
  PutU32(bytes, kSizeAt, static_cast<uint32_t>(kKernelHeaderBytes + code.size()));
  std::copy(code.begin(), code.end(), bytes.begin() + kKernelHeaderBytes);
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
  for (size_t i = kReservedAt; i < kKernelHeaderBytes; ++i)
    if (bytes[i] != 0) return Fail(ErrorCode::kMalformed, "kernel has a reserved byte set at " + std::to_string(i));
  const std::optional<Target> target = TargetFromNumber(number);
  if (!target)
    return Fail(ErrorCode::kTargetMismatch,
                "kernel is for target number " + std::to_string(number) + ", which this build does not know");
  if (entry < kKernelHeaderBytes || entry >= bytes.size())
    return Fail(ErrorCode::kMalformed, "kernel's entry " + std::to_string(entry) + " lies outside its code");
  return KernelBlobView{*target, abi, entry, bytes};
}

}  // namespace kiln

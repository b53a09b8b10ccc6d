#include "common/native/code_mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "common/base/checked_math.h"
#include "common/native/fault_handler.h"

namespace kiln {
namespace {

constexpr size_t kKernelAlignment = 64;

size_t Aligned(size_t bytes) {
  return (bytes + kKernelAlignment - 1) / kKernelAlignment * kKernelAlignment;
}

}  // namespace

Result<std::unique_ptr<CodeMapping>> CodeMapping::Map(std::span<const KernelId> ids,
                                                      std::span<const std::span<const uint8_t>> blobs, Target host) {
  if (ids.size() != blobs.size())
    return Fail(ErrorCode::kInvalidArgument, "plan names " + std::to_string(ids.size()) + " kernels, but " +
                                                 std::to_string(blobs.size()) + " were given");
  std::vector<KernelBlobView> views;
  size_t bytes = 0;
  for (const auto& blob : blobs) {
    ASSIGN_OR_RETURN(KernelBlobView view, ParseKernelBlob(blob));
    if (!CanRun(host, view.target))
      return Fail(ErrorCode::kTargetMismatch, "kernel is for " + std::string(InfoOf(view.target).name) +
                                                  ", this host runs at most " + std::string(InfoOf(host).name));
    bytes += Aligned(blob.size());
    views.push_back(view);
  }
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t size =
      static_cast<size_t>(RoundUp(static_cast<int64_t>(bytes == 0 ? 1 : bytes), static_cast<int64_t>(page)));
  void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (base == MAP_FAILED)
    return Fail(ErrorCode::kResourceExhausted,
                "cannot map " + std::to_string(size) + " bytes for kernels: " + std::strerror(errno));
  std::unique_ptr<CodeMapping> mapping(new CodeMapping(base, size));
  auto* next = static_cast<uint8_t*>(base);
  for (size_t i = 0; i < views.size(); ++i) {
    std::memcpy(next, views[i].bytes.data(), views[i].bytes.size());
    if (HashBytes({next, views[i].bytes.size()}) != ids[i])
      return Fail(ErrorCode::kIntegrityFailure,
                  "kernel " + ids[i].ShortHex() + " does not have the contents its id names");
    mapping->blobs_.push_back({next, views[i].bytes.size()});
    mapping->entries_.push_back(reinterpret_cast<KilnKernel>(next + views[i].entry_offset));
    next += Aligned(views[i].bytes.size());
  }
  if (mprotect(base, size, PROT_READ | PROT_EXEC) != 0)
    return Fail(ErrorCode::kResourceExhausted, std::string("cannot make kernels executable: ") + std::strerror(errno));
  return mapping;
}

CodeMapping::~CodeMapping() {
  if (attributed_) LeaveCodeRange(base_);
  munmap(base_, size_);
}

void CodeMapping::AttributeFaults(const Digest& plan, const Digest& contents) {
  attributed_ = true;
  EnterCodeRange(base_, size_, plan, contents);
}

}  // namespace kiln

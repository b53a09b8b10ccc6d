// CodeMapping: the executable memory of one plan's kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/artifact/kernel_abi.h"
#include "common/artifact/kernel_blob.h"
#include "common/artifact/plan.h"
#include "common/base/result.h"

namespace kiln {

// One anonymous mapping holding every kernel of a plan, each at a 64-byte boundary. The bytes are written, hashed again
// where they lie (they must still have the id they were fetched under), then made read-execute; no page is ever
// writable and executable at once. Immutable afterwards; safe to call from any thread. Unmapped by the destructor: the
// owner guarantees that no frame can return into it (EpochDomain).
class CodeMapping {
 public:
  // `blobs[i]` must hash to `ids[i]`. IntegrityFailure, TargetMismatch (wrong target or ABI for `host`), or
  // ResourceExhausted.
  static Result<std::unique_ptr<CodeMapping>> Map(std::span<const KernelId> ids,
                                                  std::span<const std::span<const uint8_t>> blobs, Target host);
  ~CodeMapping();
  CodeMapping(const CodeMapping&) = delete;
  CodeMapping& operator=(const CodeMapping&) = delete;

  KilnKernel entry(size_t kernel) const { return entries_[kernel]; }
  size_t size() const { return size_; }
  size_t kernels() const { return entries_.size(); }
  // The blob of a kernel as it lies in the mapping.
  std::span<const uint8_t> blob(size_t kernel) const { return blobs_[kernel]; }
  // From now on a fault in this code is one of that plan (fault_handler.h). At most once.
  void AttributeFaults(const Digest& plan, const Digest& contents);

 private:
  CodeMapping(void* base, size_t size) : base_(base), size_(size) {}
  void* base_;
  size_t size_;
  bool attributed_ = false;
  std::vector<KilnKernel> entries_;
  std::vector<std::span<const uint8_t>> blobs_;
};

}  // namespace kiln

// NVRTC, NVIDIA's compiler of CUDA C++, opened at run time: nothing of CUDA is needed to build or to link.
//
// Its output is opaque here: bytes that are hashed, kept and sent (docs/design.md).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/artifact/target.h"
#include "common/base/result.h"

namespace kiln::codegen::cuda {

// What the assembler said about a kernel.
struct KernelResources {
  uint32_t registers = 0, barriers = 0, shared_bytes = 0, stack_bytes = 0, spill_bytes = 0;
};
// From the compiler's log; Malformed when it says nothing of a kernel.
Result<KernelResources> ParseResources(std::string_view log);

struct NvrtcOutput {
  std::vector<uint8_t> image;
  KernelResources resources;
};

// Not thread-safe. Files: the library and its builtins, which lie beside it.
class Nvrtc {
 public:
  // NotFound when there is no such library; Unsupported when it lacks an entry point, or has another major version than
  // the one that this build knows.
  static Result<std::unique_ptr<Nvrtc>> Open(const std::string& path);
  ~Nvrtc();

  // CompileFailed with the compiler's log (registers that spill included); DeadlineExceeded when it takes more than
  // `cpu_ms` of the processor: how busy the host is makes no difference.
  Result<NvrtcOutput> Compile(const std::string& source, Target target, int64_t cpu_ms);
  // The least driver that runs what it compiles, as cuDriverGetVersion names it: 13000, of the same major version.
  uint32_t driver_version() const { return driver_version_; }

 private:
  struct Api;
  explicit Nvrtc(std::unique_ptr<Api> api);
  std::unique_ptr<Api> api_;
  uint32_t driver_version_ = 0;
};

}  // namespace kiln::codegen::cuda

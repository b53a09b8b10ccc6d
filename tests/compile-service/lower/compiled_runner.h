// Runs specs as compiled kernels of the host, so that a lowered segment is checked together with code generation.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compile-service/codegen/llvm/kernel_compiler.h"
#include "tests/compile-service/lower/check_program.h"
#include "tests/support/executable_memory.h"

namespace kiln::testing {

// Compiles each distinct spec once, and validates it at the dims of its first call, as the compile service does. Lives
// as long as its runner is used.
class CompiledRunner {
 public:
  explicit CompiledRunner(Target target);
  SpecRunner runner();
  size_t kernels() const { return kernels_.size(); }

 private:
  Result<const ExecutableKernel*> Kernel(const ir::KernelSpec& spec, std::span<const int64_t> dims);

  const Target target_;
  Result<std::unique_ptr<codegen::KernelCompiler>> compiler_;
  std::map<std::vector<uint8_t>, std::unique_ptr<ExecutableKernel>> kernels_;  // by canonical bytes
};

// A runner for every target that is asked for; they live as long as the function does.
std::function<SpecRunner(Target)> CompiledRunners();

// CheckSegment of the program's only segment with kernels of every rung of x86-64, none of its nodes being left to a
// reference step.
lower::LoweredSegment CheckGenerated(const std::string& text, std::vector<std::vector<int64_t>> shapes);
// The same for the highest and the lowest rung, bit for bit; checks of indices may be left to a step.
lower::LoweredSegment CheckBits(const std::string& text, std::vector<std::vector<int64_t>> shapes);

// The last index of input 1 (i64, the others hold zeros) being outside of every extent, a plan for `symbols` ends with
// the op's error, before its kernel. Input dims are those of the segment.
void ExpectOutsideIndicesRefused(const Segment& segment, std::vector<int64_t> symbols);

}  // namespace kiln::testing

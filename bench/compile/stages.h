// The stages of a compile job, called one after another in this process: what each costs, without queues, sockets and
// child processes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/artifact/target.h"
#include "common/segment/segment.h"
#include "compile-service/codegen/llvm/kernel_compiler.h"
#include "compile-service/lower/lower_segment.h"

namespace kiln::bench {

struct KernelFigures {
  std::string kind;
  size_t code_bytes = 0;
  double emit_ms = 0, codegen_ms = 0, validate_ms = 0;
  uint32_t trials = 0;
};

struct PlanFigures {
  size_t steps = 0, kernels = 0, reused = 0;  // kernels compiled for an earlier plan of this workshop
  size_t code_bytes = 0;                      // of all its kernels
  int generated_nodes = 0, reference_nodes = 0;
  double lower_ms = 0;
  std::vector<KernelFigures> compiled;  // those that were not known
};

// CPU milliseconds of one thread. Not thread-safe.
class CompileStages {
 public:
  static Result<CompileStages> Create(Target target);
  // `exact` fixes every symbol that has a value.
  Result<PlanFigures> Plan(const Segment& segment, const std::vector<int64_t>& values, bool exact);

 private:
  Result<KernelFigures> Kernel(const ir::KernelSpec& spec, std::span<const std::vector<int64_t>> trial_dims);

  Target target_{};
  std::unique_ptr<codegen::KernelCompiler> compiler_;
  std::map<std::vector<uint8_t>, size_t> known_;  // code size by canonical bytes of the spec
};

}  // namespace kiln::bench

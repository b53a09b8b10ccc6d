// Strictly compiled plans as a runner of `onnx-test`: real services, no interpreter fallback.
#pragma once

#include <memory>
#include <string>

#include "cli/onnx_test/program_runner.h"
#include "cli/strict/strict_hook.h"
#include "common/base/result.h"

namespace kiln::onnx_test {

// A cache store (in memory) and a compile service of its own, and what plans need on this side. Not thread-safe.
class CompiledServices {
 public:
  // `directory` holds sockets, keys and logs; removed at the end, unless KILN_KEEP is in the environment.
  // `binaries`: where the services lie; empty: beside this program.
  static Result<std::unique_ptr<CompiledServices>> Start(const std::string& directory,
                                                         const std::string& binaries = {});
  ~CompiledServices();

  // A mode whose runs fail when a segment has no plan. Generic plans for --dynamic, exact ones are what a declared
  // shape gets.
  RunnerMode Mode(cli::StrictTier tier);
  // For tools that ask for single plans.
  cli::PlanServices plan_services();
  // Summed over every program that ran so far.
  const cli::StrictCoverage& coverage() const { return coverage_; }

 private:
  friend class CompiledRunner;
  CompiledServices() = default;
  struct Parts;
  std::unique_ptr<Parts> parts_;
  cli::StrictCoverage coverage_;
};

}  // namespace kiln::onnx_test

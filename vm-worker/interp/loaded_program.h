// A program ready to run: verified, cut into segments, emitted, kernels chosen. Immutable; shared by any number of
// threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "common/bytecode/compact.h"
#include "common/bytecode/program.h"
#include "common/ops/reference_kernel.h"
#include "common/segment/entry_requirements.h"
#include "common/segment/segment.h"

namespace kiln {

struct LoadOptions {
  // Runs the compact form's own verifier; on in builds without optimisation.
#ifdef __OPTIMIZE__
  bool verify_code = false;
#else
  bool verify_code = true;
#endif
  // Finds what every run asks of the sizes of the inputs, refuses the program where no call can give it, and checks it
  // where a run enters. Without: the nodes check it.
  bool entry_requirements = true;
  std::vector<SymbolId> given;  // symbols whose values callers pass (RunOptions::symbols) and no input shows
};

// The reference kernel of a node, with its attributes parsed. `run` is null for nodes that have none (views, control).
struct NodeKernel {
  ReferenceKernel kernel;
  std::shared_ptr<const void> prepared;
  int32_t random_node = -1;  // of a node that draws random numbers: its number among those
};

class LoadedProgram {
 public:
  // Fails as VerifyProgram and FindEntryRequirements do, and with Unsupported when an op has no kernel for its dtype;
  // names the node.
  static Result<std::shared_ptr<const LoadedProgram>> Load(Program program, const LoadOptions& options = {});

  const Program& program() const { return program_; }
  const CompactProgram& code() const { return code_; }
  const EntryRequirements& entry_requirements() const { return entry_requirements_; }
  const std::vector<SegmentSite>& sites() const { return sites_; }
  const std::vector<Segment>& segments() const { return segments_; }  // per site
  std::span<const TensorRef> weights(int segment) const { return weights_[static_cast<size_t>(segment)]; }
  const NodeKernel& kernel(uint32_t node) const { return kernels_[node]; }  // per code().nodes
  size_t random_nodes() const { return random_nodes_; }                     // that draw random numbers
  // Distinct for every load of this process.
  uint64_t serial() const { return serial_; }
  // Bytes of tables and code, without constants.
  size_t overhead_bytes() const;

 private:
  LoadedProgram() = default;
  Status ChooseKernels();

  Program program_;
  std::vector<SegmentSite> sites_;
  std::vector<Segment> segments_;
  std::vector<std::vector<TensorRef>> weights_;
  CompactProgram code_;
  EntryRequirements entry_requirements_;
  std::vector<NodeKernel> kernels_;
  size_t random_nodes_ = 0;
  uint64_t serial_ = 0;
};

// A segment's body as a program of its own; its inputs are the run-time inputs, then the weights.
Result<std::shared_ptr<const LoadedProgram>> LoadSegmentBody(const Segment& segment, const LoadOptions& options = {});

}  // namespace kiln

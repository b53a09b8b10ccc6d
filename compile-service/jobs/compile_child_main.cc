// kiln-compile-child: lowers segments and generates code, of processors by LLVM and of GPUs by NVRTC, one job at a
// time. Runs no generated code and talks to nobody but its parent.
#include <malloc.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>

#include "common/base/printable.h"
#include "common/compile_api/compile_api.h"
#include "common/segment/segment.h"
#include "compile-service/codegen/cuda/cuda_compiler.h"
#include "compile-service/codegen/cuda/nvrtc_build.h"
#include "compile-service/codegen/disassembler/disassembler.h"
#include "compile-service/codegen/llvm/kernel_compiler.h"
#include "compile-service/ir/spec_form.h"
#include "compile-service/jobs/codegen_id_of.h"
#include "compile-service/jobs/job_codec.h"
#include "compile-service/jobs/replay_files.h"
#include "compile-service/jobs/trial_dims.h"
#include "compile-service/lower/lower_segment.h"
#include "compile-service/lower/tuning.h"

namespace kiln {
namespace {

lower::SymbolChoice ChoiceOf(const SymbolGuard& guard) {
  if (guard.min == guard.max) return {lower::SymbolChoice::Kind::kExact, guard.min, guard.max, 1};
  if (guard.min == 0 && guard.max == Interval::kNoBound && guard.divisor == 1) return {};
  return {lower::SymbolChoice::Kind::kRange, guard.min, guard.max, guard.divisor};
}

LowerAnswer::Tunable ToAnswer(const lower::Tunable& tunable, const std::string& target, const Digest& codegen_id) {
  LowerAnswer::Tunable answer;
  for (const ir::KernelSpec& form : tunable.forms)
    answer.forms.push_back(
        {ir::ComputeKernelKey(form, target, codegen_id), ir::EncodeSpec(form), std::string(ir::SpecForm(form))});
  for (const lower::TunedCall& call : tunable.calls) answer.calls.push_back({call.dims, call.uses});
  return answer;
}

// `chosen`: forms of the tunable kernels; null: as the cost model has it.
Result<Frame> Lower(const std::vector<uint8_t>& bytes, const std::vector<uint32_t>* chosen, const std::string& nvrtc) {
  ASSIGN_OR_RETURN(CompileRequest request, DecodeCompileRequest({bytes, {}}));
  ASSIGN_OR_RETURN(Segment segment, DecodeSegment(request.segment));
  const std::optional<Target> target = TargetFromName(request.target);
  if (!target) return Fail(ErrorCode::kInvalidArgument, "unknown target \"" + request.target + "\"");
  ASSIGN_OR_RETURN(const Digest codegen_id, CodegenIdOf(*target, nvrtc));
  lower::LowerRequest lowering{segment, *target, request.numeric_mode, request.hints, {}};
  lowering.weights = request.weights;
  for (const SymbolGuard& guard : request.symbols) lowering.symbols.push_back(ChoiceOf(guard));
  ASSIGN_OR_RETURN(lower::LoweredSegment lowered, lower::LowerSegment(lowering));
  LowerAnswer answer;
  answer.codegen_id = codegen_id;
  if (request.tier == PlanTier::kTuned) {
    lowered.plan.tuned = true;
    const std::vector<lower::Tunable> tunable = lower::FindTunable(lowered, *target, request.hints);
    for (const lower::Tunable& kernel : tunable)
      answer.tunable.push_back(ToAnswer(kernel, request.target, answer.codegen_id));
    if (chosen != nullptr) RETURN_IF_ERROR(lower::TakeForms(lowered, *target, tunable, *chosen));
  }
  const auto trials = TrialDims(lowered.plan, lowered.specs.size(), request.hints);
  answer.plan = EncodePlan(lowered.plan);
  for (size_t i = 0; i < lowered.specs.size(); ++i) {
    const ir::KernelSpec& spec = lowered.specs[i];
    answer.kernels.push_back(
        {ir::ComputeKernelKey(spec, request.target, answer.codegen_id), ir::EncodeSpec(spec), trials[i]});
  }
  answer.generated_nodes = static_cast<uint32_t>(lowered.coverage.kernel_nodes);
  answer.reference_nodes = static_cast<uint32_t>(lowered.coverage.reference_nodes);
  return ToFrame(answer);
}

// Compilers live as long as the process: setting one up costs more than a kernel.
class Compilers {
 public:
  explicit Compilers(std::string nvrtc) : nvrtc_(std::move(nvrtc)) {}

  Status Warm(Target target) {
    const bool device = InfoOf(target).is_device();
    if (device && cuda_[target] == nullptr) {
      RETURN_IF_ERROR(CodegenIdOf(target, nvrtc_));  // says what is missing
      ASSIGN_OR_RETURN(cuda_[target], codegen::cuda::CudaCompiler::Create(target, nvrtc_));
    }
    if (!device && llvm_[target] == nullptr) {
      ASSIGN_OR_RETURN(llvm_[target], codegen::KernelCompiler::Create(target));
    }
    return {};
  }
  // As kernel_blob.h has it.
  Result<std::vector<uint8_t>> Compile(Target target, const ir::KernelSpec& spec) {
    RETURN_IF_ERROR(Warm(target));
    if (InfoOf(target).is_device()) {
      ASSIGN_OR_RETURN(codegen::cuda::CudaCode code, cuda_[target]->Compile(spec));
      return std::move(code.bytes);
    }
    ASSIGN_OR_RETURN(codegen::KernelCode code, llvm_[target]->Compile(spec));
    return std::move(code.bytes);
  }
  const std::string& nvrtc() const { return nvrtc_; }

 private:
  const std::string nvrtc_;  // the library's path; empty: none
  std::map<Target, std::unique_ptr<codegen::KernelCompiler>> llvm_;
  std::map<Target, std::unique_ptr<codegen::cuda::CudaCompiler>> cuda_;
};

Result<Frame> CompileKernel(const Frame& frame, Compilers& compilers) {
  ASSIGN_OR_RETURN(CompileKernelJob job, CompileKernelJobFrom(frame));
  ASSIGN_OR_RETURN(ir::KernelSpec spec, ir::DecodeSpec(job.spec));
  RETURN_IF_ERROR(ir::VerifySpec(spec));
  ASSIGN_OR_RETURN(std::vector<uint8_t> code, compilers.Compile(job.target, spec));
  return ToFrame(CompileKernelAnswer{std::move(code)});
}

Result<Frame> Disassemble(const Frame& frame) {
  ASSIGN_OR_RETURN(const std::string listing, codegen::Disassemble(frame.payload));
  return ListingFrame(listing);
}

Result<Frame> Do(const Frame& job, Compilers& compilers) {
  if (job.kind == static_cast<uint8_t>(JobKind::kLower)) return Lower(job.payload, nullptr, compilers.nvrtc());
  if (job.kind == static_cast<uint8_t>(JobKind::kLowerTuned)) {
    ASSIGN_OR_RETURN(const LowerTunedJob tuned, LowerTunedJobFrom(job));
    return Lower(tuned.request, &tuned.chosen, compilers.nvrtc());
  }
  if (job.kind == static_cast<uint8_t>(JobKind::kDisassemble)) return Disassemble(job);
  return CompileKernel(job, compilers);
}

// Does the job of a replay file again.
int Replay(const char* path) {
  Compilers compilers(codegen::cuda::FindNvrtc("").value_or(std::string()));
  const Result<Frame> job = ReadReplay(path);
  const Result<Frame> answer = job.has_value() ? Do(*job, compilers) : job;
  if (answer.has_value()) {
    std::printf("done: %zu bytes of answer\n", answer->payload.size());
    return 0;
  }
  std::fprintf(stderr, "%s\n", Printable(ToString(answer.error())).c_str());
  return ErrorExitCode(answer.error().code);
}

int Main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--replay") == 0) return Replay(argv[2]);
  bool cold = false;
  std::string nvrtc;
  for (int i = 1; i < argc; ++i) {
    cold = cold || std::strcmp(argv[i], kColdChild) == 0;
    if (std::string_view(argv[i]).starts_with(kNvrtcArgument)) nvrtc = argv[i] + std::strlen(kNvrtcArgument);
  }
  mallopt(M_MMAP_THRESHOLD, 64 << 20);
  mallopt(M_TRIM_THRESHOLD, 128 << 20);
  Compilers compilers(std::move(nvrtc));
  if (const std::vector<Target> targets = HostTargets(); !cold && !targets.empty())
    auto ignored = compilers.Warm(targets.front());  // before the first job
  for (;;) {
    Result<Frame> job = ReadFrame(kChildSocket, -1);
    if (!job.has_value()) return 0;  // the parent is gone or done with us
    Result<Frame> answer = Do(*job, compilers);
    if (!WriteFrame(kChildSocket, answer.has_value() ? *answer : FailedFrame(answer.error())).has_value()) return 0;
  }
}

}  // namespace
}  // namespace kiln

int main(int argc, char** argv) {
  return kiln::Main(argc, argv);
}

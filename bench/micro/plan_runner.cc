#include "bench/micro/plan_runner.h"

#include <algorithm>
#include <random>

#include "common/bytecode/program_text.h"
#include "common/ops/infer.h"
#include "compile-service/lower/lower_segment.h"
#include "vm-worker/dispatch/segment_call.h"

namespace kiln::bench {
namespace {

// Descs of every value by the shape rules, so that programs need not spell them out. No rule here needs contents.
Status InferDescs(Program& program) {
  Function& function = program.functions.front();
  for (const Node& node : function.regions.front().nodes) {
    std::vector<const TensorDesc*> inputs;
    for (ValueId input : node.inputs)
      inputs.push_back(input < 0 ? nullptr : &function.values[static_cast<size_t>(input)].desc);
    InferContext context{program.symbols, node.op, node.attributes, program.constants, inputs};
    context.known = [](int) -> std::optional<KnownValues> { return std::nullopt; };
    context.known_floats = [](int) -> std::optional<std::vector<double>> { return std::nullopt; };
    context.outputs.resize(node.outputs.size());
    RETURN_IF_ERROR(InferShapes(context));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] < 0) continue;
      TensorDesc& desc = function.values[static_cast<size_t>(node.outputs[i])].desc;
      desc.dtype = context.outputs[i].dtype;
      desc.dims = context.outputs[i].dims;
    }
  }
  return {};
}

// The same for every plan of a shape, so that plans and peers can be compared.
Result<Tensor> RandomTensor(const TensorDesc& desc, const SymbolTable& symbols, std::span<const int64_t> values,
                            uint32_t seed) {
  Dims dims;
  for (Dim dim : *desc.dims) {
    ASSIGN_OR_RETURN(const int64_t extent, symbols.Evaluate(dim, values));
    dims.push_back(extent);
  }
  Tensor tensor = Tensor::Zeros(desc.dtype, dims);
  if (desc.dtype != DType::kF32) return tensor;
  std::minstd_rand random(seed + 1);
  for (float& value : tensor.values<float>()) value = static_cast<float>(random() % 2001) * 1e-3f - 1.0f;
  return tensor;
}

Result<std::shared_ptr<const CodeMapping>> Compile(const std::vector<ir::KernelSpec>& specs, Plan& plan, Target target,
                                                   codegen::KernelCompiler& compiler) {
  std::vector<std::vector<uint8_t>> codes;
  for (const ir::KernelSpec& spec : specs) {
    ASSIGN_OR_RETURN(codegen::KernelCode code, compiler.Compile(spec));
    plan.kernels.push_back(HashBytes(code.bytes));
    codes.push_back(std::move(code.bytes));
  }
  const std::vector<std::span<const uint8_t>> blobs(codes.begin(), codes.end());
  ASSIGN_OR_RETURN(auto mapping, CodeMapping::Map(plan.kernels, blobs, target));
  return std::shared_ptr<const CodeMapping>(std::move(mapping));
}

}  // namespace

Result<std::unique_ptr<PlanRunner>> PlanRunner::Create(const std::string& text, int64_t size, bool exact, Target target,
                                                       codegen::KernelCompiler& compiler) {
  std::unique_ptr<PlanRunner> runner(new PlanRunner());
  ASSIGN_OR_RETURN(Program program, ParseProgram(text));
  RETURN_IF_ERROR(InferDescs(program));
  const std::vector<SegmentSite> sites = FindSegments(program);
  if (sites.size() != 1)
    return Fail(ErrorCode::kInvalidArgument, "the program has " + std::to_string(sites.size()) + " segments");
  ASSIGN_OR_RETURN(runner->segment_, CanonicalSegment(program, sites[0]));
  const Segment& segment = runner->segment_;
  runner->values_.assign(segment.symbols.size(), size);
  const std::vector<int64_t>& values = runner->values_;
  lower::LowerRequest request{segment, target, NumericMode::kDefault, values, {}};
  if (exact) request.symbols.assign(values.size(), {lower::SymbolChoice::Kind::kExact, size, size, 1});
  ASSIGN_OR_RETURN(lower::LoweredSegment lowered, lower::LowerSegment(request));
  if (lowered.coverage.reference_nodes > 0) return Fail(ErrorCode::kUnsupported, "the plan has reference steps");
  auto plan = std::make_shared<Plan>(std::move(lowered.plan));
  ASSIGN_OR_RETURN(auto code, Compile(lowered.specs, *plan, target, compiler));
  runner->plan_ = plan;

  for (int i = 0; i < segment.runtime_inputs + segment.weight_count(); ++i) {
    ASSIGN_OR_RETURN(Tensor tensor,
                     RandomTensor(segment.input(i), segment.body.symbols, values, static_cast<uint32_t>(i)));
    const bool is_input = i < segment.runtime_inputs;
    (is_input ? runner->input_refs_ : runner->weight_refs_).push_back(tensor.ref);
    (is_input ? runner->inputs_ : runner->weights_).push_back(std::move(tensor));
  }
  runner->packer_ = std::make_unique<PackedWeights>(InterpretRecipe);
  ASSIGN_OR_RETURN(auto linked, LinkedPlan::Link(plan, ComputePlanKey(*plan), segment, code, runner->weight_refs_,
                                                 *runner->packer_));
  ASSIGN_OR_RETURN(runner->instance_, PlanInstance::Instantiate(linked, values));
  for (size_t i = 0; i < runner->instance_->output_count(); ++i) {
    runner->outputs_.push_back(Tensor::Zeros(runner->instance_->output(i).dtype, runner->instance_->output(i).dims));
    runner->output_pointers_.push_back(runner->outputs_.back().ref.data);
  }
  runner->arena_ = Buffer::Allocate(static_cast<size_t>(runner->instance_->arena_bytes()));
  return runner;
}

Status PlanRunner::Run() {
  if (isolated_) {
    const KilnKernelArgs args{isolated_->pointers.data(), isolated_->dims.data(), isolated_->scratch->data()};
    isolated_->entry(&args, 0, isolated_->range);
    return {};
  }
  return instance_->Run({input_refs_, output_pointers_, arena_->data(), nullptr});
}

namespace {

class PointersOfStep final : public StepWatcher {
 public:
  explicit PointersOfStep(size_t step) : step_(step) {}
  void AfterStep(size_t step, std::span<void* const> pointers) override {
    if (step == step_) found.assign(pointers.begin(), pointers.end());
  }
  std::vector<void*> found;

 private:
  const size_t step_;
};

}  // namespace

Status PlanRunner::Isolate() {
  const auto value = [&](Dim dim) { return plan_->symbols.Evaluate(dim, values_).value_or(0); };
  const KernelStep* costliest = nullptr;
  size_t index = 0;
  for (size_t i = 0; i < plan_->steps.size(); ++i) {
    const auto* step = std::get_if<KernelStep>(&plan_->steps[i].step);
    if (step == nullptr || (costliest != nullptr && value(step->cost) <= value(costliest->cost))) continue;
    costliest = step;
    index = i;
  }
  if (costliest == nullptr) return Fail(ErrorCode::kNotFound, "the plan has no kernel");
  PointersOfStep watcher(index);
  PlanCall call{input_refs_, output_pointers_, arena_->data(), nullptr};
  call.watcher = &watcher;
  RETURN_IF_ERROR(instance_->Run(call));
  IsolatedKernel kernel{instance_->linked().code().entry(static_cast<size_t>(costliest->kernel)),
                        watcher.found,
                        {},
                        value(costliest->range),
                        Buffer::Allocate(static_cast<size_t>(std::max<int64_t>(64, value(costliest->scratch_bytes))))};
  for (Dim dim : costliest->dims) kernel.dims.push_back(value(dim));
  isolated_ = std::move(kernel);
  return {};
}

}  // namespace kiln::bench

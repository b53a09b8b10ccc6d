#include <unordered_map>

#include "common/artifact/plan.h"
#include "common/base/byte_io.h"
#include "common/base/flatbuffer.h"
#include "common/bytecode/attribute_bytes.h"
#include "common/bytecode/program_codec.h"
#include "schemas/plan_generated.h"

namespace kiln {
namespace {

constexpr uint32_t kPlanVersion = 1;

// Collects the distinct Dims of a plan into the pool that everything else refers to.
class DimPool {
 public:
  explicit DimPool(const SymbolTable& symbols) : symbols_(symbols) {}
  uint32_t Add(Dim dim) {
    std::vector<int64_t> code = symbols_.Encode(dim);
    std::string key(reinterpret_cast<const char*>(code.data()), code.size() * sizeof(int64_t));
    const auto [it, added] = index_.try_emplace(std::move(key), static_cast<uint32_t>(codes_.size()));
    if (added) codes_.push_back(std::move(code));
    return it->second;
  }
  std::vector<uint32_t> Add(const std::vector<Dim>& dims) {
    std::vector<uint32_t> list;
    for (Dim dim : dims) list.push_back(Add(dim));
    return list;
  }
  const std::vector<std::vector<int64_t>>& codes() const { return codes_; }

 private:
  const SymbolTable& symbols_;
  std::unordered_map<std::string, uint32_t> index_;
  std::vector<std::vector<int64_t>> codes_;
};

flatbuffers::Offset<fbs::PlanStep> EncodeStep(flatbuffers::FlatBufferBuilder& builder, const PlanStep& step,
                                              const SymbolTable& symbols, DimPool& pool) {
  const auto nodes = builder.CreateVector(step.nodes);
  const auto label = builder.CreateString(step.label);
  if (const auto* kernel = std::get_if<KernelStep>(&step.step)) {
    const auto pointers = builder.CreateVector(kernel->pointers);
    const auto dims = builder.CreateVector(pool.Add(kernel->dims));
    fbs::PlanStepBuilder table(builder);
    table.add_kernel(kernel->kernel);
    table.add_pointers(pointers);
    table.add_dims(dims);
    table.add_range(pool.Add(kernel->range));
    table.add_cost(pool.Add(kernel->cost));
    table.add_scratch_bytes(pool.Add(kernel->scratch_bytes));
    table.add_nodes(nodes);
    table.add_label(label);
    return table.Finish();
  }
  const auto& node = std::get<ReferenceStep>(step.step);
  const auto attributes = builder.CreateVector(EncodeAttributes(node.attributes, symbols));
  const auto inputs = builder.CreateVector(node.inputs);
  const auto outputs = builder.CreateVector(node.outputs);
  fbs::PlanStepBuilder table(builder);
  table.add_op(static_cast<uint16_t>(node.op));
  table.add_attributes(attributes);
  table.add_inputs(inputs);
  table.add_outputs(outputs);
  table.add_nodes(nodes);
  table.add_label(label);
  return table.Finish();
}

// Decoding state: the pool as Dims, and checked access to it.
struct DecodedPool {
  std::vector<Dim> dims;
  Result<Dim> At(uint32_t index) const {
    if (index >= dims.size())
      return Fail(ErrorCode::kMalformed,
                  "plan refers to expression " + std::to_string(index) + " of " + std::to_string(dims.size()));
    return dims[index];
  }
  Result<std::vector<Dim>> List(const flatbuffers::Vector<uint32_t>* list) const {
    std::vector<Dim> result;
    if (list != nullptr)
      for (uint32_t index : *list) {
        ASSIGN_OR_RETURN(Dim dim, At(index));
        result.push_back(dim);
      }
    return result;
  }
};

std::vector<int32_t> Ints(const flatbuffers::Vector<int32_t>* list) {
  return list == nullptr ? std::vector<int32_t>() : std::vector<int32_t>(list->begin(), list->end());
}

Result<PlanStep> DecodeStep(const fbs::PlanStep& table, const DecodedPool& pool, SymbolTable& symbols) {
  PlanStep step;
  step.nodes = Ints(table.nodes());
  if (table.label() != nullptr) step.label = table.label()->str();
  if (table.kernel() >= 0) {
    KernelStep kernel;
    kernel.kernel = table.kernel();
    kernel.pointers = Ints(table.pointers());
    ASSIGN_OR_RETURN(kernel.dims, pool.List(table.dims()));
    ASSIGN_OR_RETURN(kernel.range, pool.At(table.range()));
    ASSIGN_OR_RETURN(kernel.cost, pool.At(table.cost()));
    ASSIGN_OR_RETURN(kernel.scratch_bytes, pool.At(table.scratch_bytes()));
    step.step = std::move(kernel);
    return step;
  }
  ReferenceStep node;
  const std::optional<TensorOp> op = TensorOpFromNumber(table.op());
  if (!op)
    return Fail(ErrorCode::kUnsupported,
                "plan step uses tensor op " + std::to_string(table.op()) + ", which this build lacks");
  node.op = *op;
  ASSIGN_OR_RETURN(node.attributes, DecodeAttributes(BytesOf(table.attributes()), symbols));
  node.inputs = Ints(table.inputs());
  node.outputs = Ints(table.outputs());
  step.step = std::move(node);
  return step;
}

Result<std::vector<PlanValue>> DecodeValues(const fbs::Plan& root, const DecodedPool& pool) {
  std::vector<PlanValue> values;
  if (root.values() == nullptr) return values;
  for (const fbs::PlanValue* table : *root.values()) {
    PlanValue value;
    if (table->storage() > static_cast<uint8_t>(StorageKind::kArena))
      return Fail(ErrorCode::kMalformed, "plan value has unknown storage kind " + std::to_string(table->storage()));
    value.storage = static_cast<StorageKind>(table->storage());
    value.index = table->index();
    const std::optional<DType> dtype = DTypeFromNumber(table->dtype());
    if (!dtype) return Fail(ErrorCode::kMalformed, "plan value has unknown dtype " + std::to_string(table->dtype()));
    value.dtype = *dtype;
    ASSIGN_OR_RETURN(value.offset, pool.At(table->offset()));
    ASSIGN_OR_RETURN(value.dims, pool.List(table->dims()));
    ASSIGN_OR_RETURN(value.strides, pool.List(table->strides()));
    values.push_back(std::move(value));
  }
  return values;
}

std::vector<flatbuffers::Offset<fbs::KernelTuning>> EncodeTuning(flatbuffers::FlatBufferBuilder& builder,
                                                                 const std::vector<KernelTuning>& tuning) {
  std::vector<flatbuffers::Offset<fbs::KernelTuning>> list;
  for (const KernelTuning& kernel : tuning) {
    std::vector<flatbuffers::Offset<fbs::TunedChoice>> choices;
    for (const TunedChoice& choice : kernel.choices)
      choices.push_back(fbs::CreateTunedChoice(builder, builder.CreateString(choice.what), choice.ns));
    list.push_back(fbs::CreateKernelTuning(builder, kernel.kernel, kernel.chosen, builder.CreateVector(choices)));
  }
  return list;
}

std::vector<KernelTuning> DecodeTuning(const fbs::Plan& root) {
  std::vector<KernelTuning> tuning;
  if (root.tuning() == nullptr) return tuning;
  for (const fbs::KernelTuning* table : *root.tuning()) {
    KernelTuning kernel{table->kernel(), table->chosen(), {}};
    if (table->choices() != nullptr)
      for (const fbs::TunedChoice* choice : *table->choices())
        kernel.choices.push_back({choice->what() == nullptr ? "" : choice->what()->str(), choice->ns()});
    tuning.push_back(std::move(kernel));
  }
  return tuning;
}

}  // namespace

std::vector<uint8_t> EncodePlan(const Plan& plan) {
  flatbuffers::FlatBufferBuilder builder(1 << 16);
  DimPool pool(plan.symbols);
  std::vector<flatbuffers::Offset<fbs::PlanValue>> values;
  for (const PlanValue& value : plan.values) {
    const auto dims = builder.CreateVector(pool.Add(value.dims));
    const auto strides = builder.CreateVector(pool.Add(value.strides));
    values.push_back(fbs::CreatePlanValue(builder, static_cast<uint8_t>(value.storage), value.index,
                                          static_cast<uint8_t>(value.dtype), pool.Add(value.offset), dims, strides));
  }
  std::vector<flatbuffers::Offset<fbs::PlanBuffer>> buffers;
  for (const PlanBuffer& buffer : plan.buffers)
    buffers.push_back(fbs::CreatePlanBuffer(builder, pool.Add(buffer.bytes), buffer.first_step, buffer.last_step,
                                            buffer.in_place_of));
  std::vector<flatbuffers::Offset<fbs::PrepackRecipe>> recipes;
  for (const PrepackRecipe& recipe : plan.recipes) {
    const auto program = EncodeProgram(recipe.program);
    const auto bytes = builder.CreateVector(program.has_value() ? *program : std::vector<uint8_t>());
    recipes.push_back(fbs::CreatePrepackRecipe(builder, bytes, builder.CreateVector(recipe.weights)));
  }
  std::vector<flatbuffers::Offset<fbs::PlanStep>> steps;
  for (const PlanStep& step : plan.steps) steps.push_back(EncodeStep(builder, step, plan.symbols, pool));
  std::vector<flatbuffers::Offset<fbs::DimCode>> codes;
  for (const auto& code : pool.codes()) codes.push_back(fbs::CreateDimCode(builder, builder.CreateVector(code)));
  std::vector<uint8_t> kernels;
  for (const KernelId& id : plan.kernels) kernels.insert(kernels.end(), id.bytes.begin(), id.bytes.end());
  const auto segment = builder.CreateVector(plan.segment.bytes.data(), kDigestBytes);
  const auto target = builder.CreateString(plan.target);
  const auto guard = builder.CreateVector(EncodeGuard(plan.guard, plan.symbols));
  const auto tuning = plan.tuning.empty()
                          ? flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<fbs::KernelTuning>>>()
                          : builder.CreateVector(EncodeTuning(builder, plan.tuning));
  const auto root =
      fbs::CreatePlan(builder, kPlanVersion, segment, target, plan.abi, static_cast<uint8_t>(plan.numeric_mode), guard,
                      builder.CreateVector(codes), builder.CreateVector(kernels), builder.CreateVector(values),
                      builder.CreateVector(buffers), builder.CreateVector(recipes), builder.CreateVector(plan.outputs),
                      builder.CreateVector(steps), plan.tuned, tuning, static_cast<uint8_t>(plan.weights));
  builder.Finish(root, fbs::PlanIdentifier());
  return {builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize()};
}

Result<Plan> DecodePlan(std::span<const uint8_t> bytes) {
  const AlignedBytes aligned(bytes);
  ASSIGN_OR_RETURN(const fbs::Plan* table, VerifiedRoot<fbs::Plan>(aligned.span(), "plan", fbs::PlanIdentifier(),
                                                                   {.depth = 16, .tables = 4'000'000}));
  const fbs::Plan& root = *table;
  if (root.version() != kPlanVersion)
    return Fail(ErrorCode::kUnsupported,
                "plan has format version " + std::to_string(root.version()) + "; this build reads 1");
  Plan plan;
  ASSIGN_OR_RETURN(plan.segment, DigestFromBytes(BytesOf(root.segment())));
  if (root.target() != nullptr) plan.target = root.target()->str();
  plan.abi = root.abi();
  const std::optional<NumericMode> mode = NumericModeFromNumber(root.numeric_mode());
  if (!mode) return Fail(ErrorCode::kMalformed, "plan has unknown numeric mode " + std::to_string(root.numeric_mode()));
  plan.numeric_mode = *mode;
  ASSIGN_OR_RETURN(plan.guard, DecodeGuard(BytesOf(root.guard()), &plan.symbols));
  DecodedPool pool;
  if (root.dims() != nullptr)
    for (const fbs::DimCode* code : *root.dims()) {
      if (code->code() == nullptr) return Fail(ErrorCode::kMalformed, "plan has an empty expression");
      ASSIGN_OR_RETURN(Dim dim, plan.symbols.Decode({code->code()->data(), code->code()->size()}));
      pool.dims.push_back(dim);
    }
  const auto kernels = BytesOf(root.kernels());
  if (kernels.size() % kDigestBytes != 0) return Fail(ErrorCode::kMalformed, "plan's kernel list is cut");
  for (size_t i = 0; i < kernels.size(); i += kDigestBytes) {
    ASSIGN_OR_RETURN(KernelId id, DigestFromBytes(kernels.subspan(i, kDigestBytes)));
    plan.kernels.push_back(id);
  }
  ASSIGN_OR_RETURN(plan.values, DecodeValues(root, pool));
  if (root.buffers() != nullptr)
    for (const fbs::PlanBuffer* table : *root.buffers()) {
      ASSIGN_OR_RETURN(Dim size, pool.At(table->bytes()));
      plan.buffers.push_back({size, table->first_step(), table->last_step(), table->in_place_of()});
    }
  if (root.recipes() != nullptr)
    for (const fbs::PrepackRecipe* table : *root.recipes()) {
      PrepackRecipe recipe;
      ASSIGN_OR_RETURN(recipe.program, DecodeProgram(BytesOf(table->program())));
      recipe.weights = Ints(table->weights());
      plan.recipes.push_back(std::move(recipe));
    }
  plan.outputs = Ints(root.outputs());
  if (root.steps() != nullptr)
    for (const fbs::PlanStep* table : *root.steps()) {
      ASSIGN_OR_RETURN(PlanStep step, DecodeStep(*table, pool, plan.symbols));
      plan.steps.push_back(std::move(step));
    }
  plan.tuned = root.tuned();
  plan.tuning = DecodeTuning(root);
  const std::optional<WeightForm> weights = WeightFormFromNumber(root.weights());
  if (!weights)
    return Fail(ErrorCode::kMalformed, "plan reads weights in unknown form " + std::to_string(root.weights()));
  plan.weights = *weights;
  return plan;
}

PlanKey ComputePlanKey(const Plan& plan) {
  FieldHasher hasher("kiln.plan.v1");
  hasher.Id(plan.segment)
      .Bytes(EncodeGuard(plan.guard, plan.symbols))
      .Text(plan.target)
      .U8(static_cast<uint8_t>(plan.numeric_mode))
      .U32(plan.abi);
  // Defaults say nothing, so that a key does not depend on which options there are.
  if (plan.tuned) hasher.Text("tuned");
  if (plan.weights != WeightForm::kPacked) hasher.Text("weights").U8(static_cast<uint8_t>(plan.weights));
  return hasher.Finish();
}

}  // namespace kiln

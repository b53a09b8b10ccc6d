#include "vm-worker/dispatch/linked_plan.h"

#include <set>

#include "common/base/checked_math.h"
#include "common/base/limits.h"
#include "common/bytecode/program_codec.h"

namespace kiln {
namespace {

Status CheckWeight(const Segment& segment, int index, const TensorRef& weight) {
  const TensorDesc& desc = segment.input(segment.runtime_inputs + index);
  const std::string name = "weight " + std::to_string(index);
  if (weight.dtype != desc.dtype)
    return Fail(ErrorCode::kShapeMismatch, name + " has dtype " + std::string(DTypeName(weight.dtype)) +
                                               ", the segment declares " + std::string(DTypeName(desc.dtype)));
  if (!desc.is_static() || desc.rank() != weight.rank())
    return Fail(ErrorCode::kShapeMismatch,
                name + " has rank " + std::to_string(weight.rank()) + ", not the declared one");
  for (int d = 0; d < weight.rank(); ++d)
    if ((*desc.dims)[static_cast<size_t>(d)].value() != weight.dims[d])
      return Fail(ErrorCode::kShapeMismatch, name + " dim " + std::to_string(d) + " is " +
                                                 std::to_string(weight.dims[d]) + ", the segment declares " +
                                                 std::to_string((*desc.dims)[static_cast<size_t>(d)].value()));
  if (!weight.IsContiguous()) return Fail(ErrorCode::kInvalidArgument, name + " is not contiguous");
  return {};
}

// Of a recipe's result, as its program declares it; 0 where it does not.
int64_t BytesMade(const PrepackRecipe& recipe) {
  const Function& function = recipe.program.entry();
  if (function.regions.front().outputs.size() != 1) return 0;
  const TensorDesc& desc = function.values[static_cast<size_t>(function.regions.front().outputs[0])].desc;
  if (!desc.is_static()) return 0;
  int64_t bytes = DTypeBytes(desc.dtype);
  for (Dim dim : *desc.dims) {
    const std::optional<int64_t> product = CheckedMul(bytes, dim.value());
    if (!product || *product > limits::kTensorBytesMax) return 0;
    bytes = *product;
  }
  return bytes;
}

bool IsExact(const Guard& guard, const Segment& segment) {
  for (size_t i = 0; i < guard.symbols.size(); ++i)
    if (segment.symbols[i].kind != SymbolSource::Kind::kValueDim && guard.symbols[i].min != guard.symbols[i].max)
      return false;
  return true;
}

}  // namespace

Result<PackedWeights::Job> PackedWeights::JobOf(const PrepackRecipe& recipe, std::span<const TensorRef> weights) {
  FieldHasher hasher("kiln.packed.v1");
  ASSIGN_OR_RETURN(std::vector<uint8_t> bytes, EncodeProgram(recipe.program));
  hasher.Bytes(bytes);
  Job job;
  for (int32_t weight : recipe.weights) {
    if (weight < 0 || static_cast<size_t>(weight) >= weights.size())
      return Fail(ErrorCode::kMalformed, "prepack recipe reads weight " + std::to_string(weight) +
                                             "; the segment has " + std::to_string(weights.size()));
    job.inputs.push_back(weights[static_cast<size_t>(weight)]);
    hasher.U64(reinterpret_cast<uintptr_t>(job.inputs.back().data)).Int64s(job.inputs.back().dims.span());
  }
  job.key = hasher.Finish();
  return job;
}

std::shared_ptr<const Tensor> PackedWeights::Find(const Digest& key, const std::shared_ptr<const void>& owner) const {
  std::lock_guard lock(mutex_);
  const auto it = packed_.find(key);
  if (it == packed_.end() || it->second.owner.owner_before(owner) ||
      std::weak_ptr<const void>(owner).owner_before(it->second.owner))
    return nullptr;
  return it->second.tensor.lock();
}

Result<std::shared_ptr<const Tensor>> PackedWeights::Make(const PrepackRecipe& recipe, const Job& job,
                                                          const std::shared_ptr<const void>& owner,
                                                          MemoryCharge& reserved, WithoutRoom without_room) {
  if (auto alive = Find(job.key, owner)) return alive;  // made for an equal recipe of the plan, or meanwhile
  ASSIGN_OR_RETURN(const std::shared_ptr<const Tensor> packed, RunBooked(recipe, job, reserved, without_room));
  std::lock_guard lock(mutex_);
  std::erase_if(packed_, [](const auto& entry) { return entry.second.tensor.expired(); });
  packed_[job.key] = {packed, owner};
  return packed;
}

Result<std::shared_ptr<const Tensor>> PackedWeights::RunBooked(const PrepackRecipe& recipe, const Job& job,
                                                               MemoryCharge& reserved, WithoutRoom without_room) {
  ASSIGN_OR_RETURN(Tensor tensor, runner_(recipe.program, job.inputs));
  struct Booked {
    Tensor tensor;
    MemoryCharge charge;
  };
  auto booked = std::make_shared<Booked>();
  const int64_t bytes = tensor.ref.bytes();
  booked->charge = reserved.Split(bytes);
  if (booked->charge.bytes() < bytes) {  // it made more than it says
    booked->charge = {};
    ASSIGN_OR_RETURN(booked->charge, MemoryCharge::Take(budget_, MemoryUse::kPackedWeights, bytes, without_room));
  }
  booked->tensor = tensor.ref.IsContiguous() ? std::move(tensor) : MakeContiguous(tensor.ref);
  return std::shared_ptr<const Tensor>(booked, &booked->tensor);
}

Result<Digest> PackedWeights::KeyOf(const PrepackRecipe& recipe, std::span<const TensorRef> weights) {
  ASSIGN_OR_RETURN(const Job job, JobOf(recipe, weights));
  return job.key;
}

Result<std::shared_ptr<const Tensor>> PackedWeights::MakeAlone(const PrepackRecipe& recipe,
                                                               std::span<const TensorRef> weights,
                                                               WithoutRoom without_room) {
  ASSIGN_OR_RETURN(const Job job, JobOf(recipe, weights));
  ASSIGN_OR_RETURN(MemoryCharge reserved,
                   MemoryCharge::Take(budget_, MemoryUse::kPackedWeights, BytesMade(recipe), without_room));
  return RunBooked(recipe, job, reserved, without_room);
}

Result<PackedWeights::Tensors> PackedWeights::Pack(std::span<const PrepackRecipe> recipes,
                                                   std::span<const TensorRef> weights,
                                                   const std::shared_ptr<const void>& owner, WithoutRoom without_room) {
  std::vector<Job> jobs;
  Tensors tensors;
  std::set<Digest> missing;
  int64_t bytes = 0;
  for (const PrepackRecipe& recipe : recipes) {
    ASSIGN_OR_RETURN(Job job, JobOf(recipe, weights));
    tensors.push_back(Find(job.key, owner));
    if (tensors.back() == nullptr && missing.insert(job.key).second) bytes += BytesMade(recipe);
    jobs.push_back(std::move(job));
  }
  ASSIGN_OR_RETURN(MemoryCharge reserved, MemoryCharge::Take(budget_, MemoryUse::kPackedWeights, bytes, without_room));
  // Runs need room as well, or they make the plan leave again.
  if (bytes > 0 && budget_ != nullptr && budget_->IsTight())
    return Fail(ErrorCode::kResourceExhausted,
                std::to_string(bytes) + " bytes of " + std::string(MemoryUseText(MemoryUse::kPackedWeights)) +
                    " would leave less than a tenth of the worker's memory of " + std::to_string(budget_->limit()) +
                    " bytes (--memory-bytes); used with them by: " + budget_->Text());
  for (size_t i = 0; i < recipes.size(); ++i) {
    if (tensors[i] != nullptr) continue;
    ASSIGN_OR_RETURN(tensors[i], Make(recipes[i], jobs[i], owner, reserved, without_room));
  }
  return tensors;
}

int64_t PackedWeights::bytes() const {
  std::lock_guard lock(mutex_);
  int64_t total = 0;
  for (const auto& [key, entry] : packed_)
    if (auto alive = entry.tensor.lock()) total += alive->ref.bytes();
  return total;
}

Result<std::shared_ptr<LinkedPlan>> LinkedPlan::Begin(std::shared_ptr<const Plan> plan, PlanKey key,
                                                      const Segment& segment, std::span<const TensorRef> weights) {
  RETURN_IF_ERROR(VerifyPlan(*plan, segment));
  if (plan->abi != KILN_KERNEL_ABI)
    return Fail(ErrorCode::kTargetMismatch, "plan needs kernel ABI " + std::to_string(plan->abi) +
                                                ", this worker has " + std::to_string(KILN_KERNEL_ABI));
  if (weights.size() != static_cast<size_t>(segment.weight_count()))
    return Fail(ErrorCode::kInvalidArgument, "segment has " + std::to_string(segment.weight_count()) + " weights, " +
                                                 std::to_string(weights.size()) + " were given");
  for (size_t i = 0; i < weights.size(); ++i) RETURN_IF_ERROR(CheckWeight(segment, static_cast<int>(i), weights[i]));

  std::shared_ptr<LinkedPlan> linked(new LinkedPlan());
  for (const PlanStep& step : plan->steps) {
    Reference reference;
    if (const auto* node = std::get_if<ReferenceStep>(&step.step)) {
      const OpFamily family = OpInfo(node->op).family;
      if (family != OpFamily::kView && node->op != TensorOp::kShapeVector) {
        const size_t typed = node->op == TensorOp::kWhere ? 1 : 0;
        const DType dtype = plan->values[static_cast<size_t>(node->inputs[typed])].dtype;
        ASSIGN_OR_RETURN(reference.kernel, FindReferenceKernel(node->op, dtype));
        if (reference.kernel.prepare) reference.prepared = reference.kernel.prepare(node->attributes);
      }
    }
    linked->references_.push_back(std::move(reference));
  }
  linked->exact_ = IsExact(plan->guard, segment);
  linked->plan_ = std::move(plan);
  linked->key_ = key;
  linked->segment_ = &segment;
  linked->weights_.assign(weights.begin(), weights.end());
  return linked;
}

Result<std::shared_ptr<const LinkedPlan>> LinkedPlan::Link(std::shared_ptr<const Plan> plan, PlanKey key,
                                                           const Segment& segment,
                                                           std::shared_ptr<const CodeMapping> code,
                                                           std::span<const TensorRef> weights, PackedWeights& packer,
                                                           const std::shared_ptr<const void>& owner,
                                                           WithoutRoom without_room) {
  ASSIGN_OR_RETURN(const std::shared_ptr<LinkedPlan> linked, Begin(std::move(plan), key, segment, weights));
  linked->code_ = std::move(code);
  ASSIGN_OR_RETURN(linked->packed_, packer.Pack(linked->plan().recipes, weights, owner, without_room));
  ASSIGN_OR_RETURN(linked->charge_,
                   MemoryCharge::Take(packer.budget(), MemoryUse::kPlans, linked->bytes(), without_room));
  return linked;
}

Result<std::shared_ptr<const LinkedPlan>> LinkedPlan::LinkOnDevice(
    std::shared_ptr<const Plan> plan, PlanKey key, const Segment& segment, std::shared_ptr<const DeviceKernels> kernels,
    std::span<const TensorRef> weights, PackedWeights& packer, DeviceWeights& copies,
    const std::shared_ptr<const void>& owner, WithoutRoom without_room) {
  ASSIGN_OR_RETURN(const std::shared_ptr<LinkedPlan> linked, Begin(std::move(plan), key, segment, weights));
  ASSIGN_OR_RETURN(linked->device_, PlaceOnDevice(linked->plan(), std::move(kernels), weights, packer, copies, owner,
                                                  without_room, linked->packed_));
  ASSIGN_OR_RETURN(linked->charge_,
                   MemoryCharge::Take(packer.budget(), MemoryUse::kPlans, linked->bytes(), without_room));
  return linked;
}

int64_t LinkedPlan::packed_bytes() const {
  int64_t bytes = 0;
  for (const auto& tensor : packed_)
    if (tensor != nullptr) bytes += tensor->ref.bytes();
  return bytes;
}

int64_t LinkedPlan::bytes() const {
  const size_t code = on_device() ? 0 : code_->size();
  return static_cast<int64_t>(code + plan_->steps.size() * sizeof(PlanStep) + plan_->values.size() * sizeof(PlanValue));
}

}  // namespace kiln

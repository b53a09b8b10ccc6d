#include "tests/compile-service/lower/run_lowered.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include "common/ops/reference_kernel.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln::testing {
namespace {

class HeapMemory : public KernelMemory {
 public:
  void* AllocateOutput(size_t bytes) override { return Keep(bytes); }
  void* AllocateScratch(size_t bytes) override { return Keep(bytes); }

 private:
  void* Keep(size_t bytes) {
    kept_.push_back(Buffer::Allocate(bytes));
    return kept_.back()->data();
  }
  std::vector<std::shared_ptr<Buffer>> kept_;
};

void Scramble(Buffer& buffer) {
  std::memset(buffer.data(), 0xff, buffer.size());
}  // NaNs, -1

class Run {
 public:
  Run(const lower::LoweredSegment& lowered, std::span<const int64_t> symbols, std::span<const TensorRef> inputs,
      std::span<const TensorRef> weights, int lanes, const SpecRunner& runner)
      : lowered_(lowered),
        plan_(lowered.plan),
        symbols_(symbols),
        inputs_(inputs),
        weights_(weights),
        lanes_(lanes),
        runner_(runner) {}

  Result<std::vector<Tensor>> Go() {
    RETURN_IF_ERROR(Prepack());
    RETURN_IF_ERROR(Allocate());
    for (size_t s = 0; s < plan_.steps.size(); ++s) {
      for (size_t b = 0; b < plan_.buffers.size(); ++b) {
        if (plan_.buffers[b].first_step == static_cast<int32_t>(s) && !InPlace(b)) Scramble(*buffers_[b]);
      }
      if (Status status = Step(plan_.steps[s]); !status) {
        return FailIn("step " + std::to_string(s) + " (" + plan_.steps[s].label + ")", status.error());
      }
      for (size_t b = 0; b < plan_.buffers.size(); ++b) {
        if (plan_.buffers[b].last_step == static_cast<int32_t>(s) && !followed_[b]) Scramble(*buffers_[b]);
      }
    }
    return std::move(outputs_);
  }

 private:
  Result<int64_t> Value(Dim dim) const { return plan_.symbols.Evaluate(dim, symbols_); }

  Status Prepack() {
    VmContext vm;
    for (const PrepackRecipe& recipe : plan_.recipes) {
      ASSIGN_OR_RETURN(const std::shared_ptr<const LoadedProgram> program, LoadedProgram::Load(recipe.program));
      std::vector<TensorRef> inputs;
      for (int32_t weight : recipe.weights) inputs.push_back(weights_[static_cast<size_t>(weight)]);
      ASSIGN_OR_RETURN(const std::vector<Tensor> results, vm.Run(*program, inputs));
      packed_.push_back(MakeContiguous(results[0].ref));
    }
    return {};
  }

  Status Allocate() {
    for (const PlanBuffer& buffer : plan_.buffers) {
      ASSIGN_OR_RETURN(const int64_t bytes, Value(buffer.bytes));
      buffers_.push_back(Buffer::Allocate(static_cast<size_t>(bytes)));
    }
    followed_.assign(plan_.buffers.size(), false);
    std::vector<size_t> order(plan_.buffers.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, {}, [&](size_t b) { return plan_.buffers[b].first_step; });
    for (size_t b : order) {
      if (!InPlace(b)) continue;
      const auto from = static_cast<size_t>(plan_.buffers[b].in_place_of);
      if (buffers_[from]->size() != buffers_[b]->size())
        return Fail(ErrorCode::kInternal, "buffer " + std::to_string(b) + " in place of one of another size");
      buffers_[b] = buffers_[from];
      followed_[from] = true;
    }
    for (int32_t index : plan_.outputs) {
      const PlanValue& value = plan_.values[static_cast<size_t>(index)];
      Dims dims;
      for (Dim dim : value.dims) {
        ASSIGN_OR_RETURN(const int64_t extent, Value(dim));
        dims.push_back(extent);
      }
      outputs_.push_back(Tensor::Allocate(value.dtype, dims));
      std::memset(outputs_.back().ref.data, 0xff, static_cast<size_t>(outputs_.back().ref.bytes()));
    }
    return {};
  }

  bool InPlace(size_t buffer) const { return plan_.buffers[buffer].in_place_of >= 0; }

  struct Storage {
    void* data;
    int64_t bytes;
  };
  Storage StorageOf(const PlanValue& value) const {
    const auto i = static_cast<size_t>(value.index);
    const auto of = [](const TensorRef& ref) { return Storage{ref.data, ref.bytes()}; };
    switch (value.storage) {
      case StorageKind::kInput:
        return of(inputs_[i]);
      case StorageKind::kOutput:
        return of(outputs_[i].ref);
      case StorageKind::kWeight:
        return of(weights_[i]);
      case StorageKind::kPrepacked:
        return of(packed_[i].ref);
      case StorageKind::kArena:
        return {buffers_[i]->data(), static_cast<int64_t>(buffers_[i]->size())};
    }
    return {};
  }

  // The value as a view; every element lies in its storage.
  Result<TensorRef> View(int32_t index) const {
    const PlanValue& value = plan_.values[static_cast<size_t>(index)];
    const int64_t size = DTypeBytes(value.dtype);
    ASSIGN_OR_RETURN(const int64_t offset, Value(value.offset));
    TensorRef ref;
    ref.dtype = value.dtype;
    int64_t low = offset, high = offset;
    bool empty = false;
    for (size_t i = 0; i < value.dims.size(); ++i) {
      ASSIGN_OR_RETURN(const int64_t extent, Value(value.dims[i]));
      ASSIGN_OR_RETURN(const int64_t stride, Value(value.strides[i]));
      ref.dims.push_back(extent);
      ref.strides.push_back(stride);
      empty = empty || extent == 0;
      (stride < 0 ? low : high) += (extent - 1) * stride;
    }
    const Storage storage = StorageOf(value);
    if (!empty && (low < 0 || (high + 1) * size > storage.bytes)) {
      return Fail(ErrorCode::kInternal, "plan value " + std::to_string(index) + " spans elements " +
                                            std::to_string(low) + ".." + std::to_string(high) + " of a storage of " +
                                            std::to_string(storage.bytes / size));
    }
    ref.data = static_cast<char*>(storage.data) + (empty ? 0 : offset * size);
    return ref;
  }

  Status Step(const PlanStep& step) {
    if (const auto* kernel = std::get_if<KernelStep>(&step.step)) return Kernel(*kernel);
    return Reference(std::get<ReferenceStep>(step.step));
  }

  Status Kernel(const KernelStep& step) {
    const ir::KernelSpec& spec = lowered_.specs[static_cast<size_t>(step.kernel)];
    std::vector<void*> pointers;
    for (int32_t value : step.pointers) {
      ASSIGN_OR_RETURN(const TensorRef ref, View(value));
      pointers.push_back(ref.data);
    }
    std::vector<int64_t> dims;
    for (Dim dim : step.dims) {
      ASSIGN_OR_RETURN(const int64_t value, Value(dim));
      dims.push_back(value);
    }
    ASSIGN_OR_RETURN(const int64_t range, Value(step.range));
    const int64_t expected = ir::RangeOf(spec, dims, lanes_);
    if (range != expected) {
      return Fail(ErrorCode::kInternal,
                  "range " + std::to_string(range) + ", the spec has " + std::to_string(expected));
    }
    const int64_t middle = range / 2;
    if (middle > 0) RETURN_IF_ERROR(runner_(spec, pointers, dims, 0, middle));
    if (range > middle) RETURN_IF_ERROR(runner_(spec, pointers, dims, middle, range));
    return {};
  }

  Status Reference(const ReferenceStep& step) {
    std::vector<TensorRef> inputs, outputs;
    DType dtype = DType::kF32;
    bool chosen = false;
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      inputs.emplace_back();
      if (step.inputs[i] < 0) continue;
      ASSIGN_OR_RETURN(inputs.back(), View(step.inputs[i]));
      if (!chosen && !(step.op == TensorOp::kWhere && i == 0)) {
        dtype = inputs.back().dtype;
        chosen = true;
      }
    }
    for (int32_t output : step.outputs) {
      outputs.emplace_back();
      if (output >= 0) {
        ASSIGN_OR_RETURN(outputs.back(), View(output));
      }
    }
    HeapMemory memory;
    KernelCall call{step.op, &step.attributes, {}, inputs, outputs, &memory};
    if (OpInfo(step.op).family == OpFamily::kView) {
      for (size_t i = 0; i < outputs.size(); ++i) {
        ASSIGN_OR_RETURN(const std::optional<TensorRef> view, MakeView(call, static_cast<int>(i), outputs[i].dims));
        if (!view) return Fail(ErrorCode::kInternal, "a view step without a view");
        CopyElements(*view, outputs[i]);
      }
      return {};
    }
    ASSIGN_OR_RETURN(const ReferenceKernel kernel, FindReferenceKernel(step.op, dtype));
    const std::shared_ptr<const void> prepared = kernel.prepare ? kernel.prepare(step.attributes) : nullptr;
    call.prepared = prepared.get();
    return kernel.run(call);
  }

  const lower::LoweredSegment& lowered_;
  const Plan& plan_;
  std::span<const int64_t> symbols_;
  std::span<const TensorRef> inputs_, weights_;
  int lanes_;
  const SpecRunner& runner_;
  std::vector<Tensor> packed_, outputs_;
  std::vector<std::shared_ptr<Buffer>> buffers_;
  std::vector<bool> followed_;  // per buffer: another one takes its place
};

}  // namespace

SpecRunner NaiveRunner(int f32_lanes) {
  return
      [f32_lanes](const ir::KernelSpec& spec, std::span<void* const> pointers, std::span<const int64_t> dims,
                  int64_t begin, int64_t end) { return ir::EvaluateSpec(spec, pointers, dims, f32_lanes, begin, end); };
}

Result<std::vector<Tensor>> RunLowered(const lower::LoweredSegment& lowered, std::span<const int64_t> symbols,
                                       std::span<const TensorRef> inputs, std::span<const TensorRef> weights,
                                       int f32_lanes, const SpecRunner& runner) {
  return Run(lowered, symbols, inputs, weights, f32_lanes, runner).Go();
}

bool GuardAdmits(const Guard& guard, const SymbolTable& symbols, std::span<const int64_t> values) {
  for (size_t s = 0; s < guard.symbols.size(); ++s) {
    if (values[s] < 0) continue;  // known only inside
    const SymbolGuard& g = guard.symbols[s];
    if (values[s] < g.min || values[s] > g.max || values[s] % g.divisor != 0) return false;
  }
  for (const Constraint& constraint : guard.constraints) {
    const Result<int64_t> left = symbols.Evaluate(constraint.left, values),
                          right = symbols.Evaluate(constraint.right, values);
    if (!left || !right || !Holds(constraint.kind, *left, *right)) return false;
  }
  return true;
}

std::string Describe(const lower::LoweredSegment& lowered) {
  std::string text;
  for (size_t s = 0; s < lowered.plan.steps.size(); ++s) {
    const PlanStep& step = lowered.plan.steps[s];
    text += "step " + std::to_string(s) + ": " + step.label;
    const auto* kernel = std::get_if<KernelStep>(&step.step);
    text += kernel ? " (kernel " + std::to_string(kernel->kernel) + ")\n" : " (reference)\n";
  }
  return text;
}

}  // namespace kiln::testing

#include "tests/common/ops/op_runner.h"

#include <algorithm>

#include "common/ops/kernels/kernel.h"

namespace kiln::testing {

void* TestMemory::AllocateOutput(size_t bytes) {
  buffers_.push_back(Buffer::Allocate(bytes));
  return buffers_.back()->data();
}
void* TestMemory::AllocateScratch(size_t bytes) {
  return AllocateOutput(bytes);
}

namespace {

struct Inferred {
  std::vector<TensorDesc> outputs;
};

Result<Inferred> Infer(const OpCase& test_case) {
  SymbolTable symbols;
  std::vector<TensorDesc> descs(test_case.inputs.size());
  std::vector<const TensorDesc*> inputs;
  for (size_t i = 0; i < descs.size(); ++i) {
    if (test_case.inputs[i]) descs[i] = StaticDesc(test_case.inputs[i]->dtype, test_case.inputs[i]->dims);
    inputs.push_back(test_case.inputs[i] ? &descs[i] : nullptr);
  }
  InferContext context{.symbols = symbols,
                       .op = test_case.op,
                       .attributes = test_case.attributes,
                       .constants = test_case.constants,
                       .inputs = inputs};
  context.known = [&](int i) -> std::optional<KnownValues> {
    const std::optional<TensorRef>& input = test_case.inputs[static_cast<size_t>(i)];
    if (!input || IsFloat(input->dtype)) return std::nullopt;
    KnownValues values;
    for (const int64_t value : kernels::ReadInts(*input)) values.push_back(Dim::Const(value));
    return values;
  };
  context.known_floats = [&](int i) -> std::optional<std::vector<double>> {
    const std::optional<TensorRef>& input = test_case.inputs[static_cast<size_t>(i)];
    if (!input || !IsFloat(input->dtype)) return std::nullopt;
    return kernels::ReadFloats(*input);
  };
  context.want_known = false;
  context.outputs.resize(test_case.outputs);
  RETURN_IF_ERROR(InferShapes(context));
  return Inferred{context.outputs};
}

}  // namespace

Result<std::vector<TensorDesc>> InferOp(const OpCase& test_case) {
  ASSIGN_OR_RETURN(Inferred inferred, Infer(test_case));
  return inferred.outputs;
}

Result<std::vector<Tensor>> RunOp(const OpCase& test_case) {
  ASSIGN_OR_RETURN(const Inferred inferred, Infer(test_case));
  TestMemory memory;
  const bool is_view = OpInfo(test_case.op).family == OpFamily::kView;
  DType chosen = DType::kF32;
  for (size_t i = test_case.op == TensorOp::kWhere ? 1 : 0; i < test_case.inputs.size(); ++i) {
    if (!test_case.inputs[i]) continue;
    chosen = test_case.inputs[i]->dtype;
    break;
  }
  ReferenceKernel kernel;
  if (!is_view) {
    ASSIGN_OR_RETURN(kernel, FindReferenceKernel(test_case.op, chosen));
  }
  std::deque<Tensor> copies;
  std::vector<TensorRef> inputs;
  for (const std::optional<TensorRef>& input : test_case.inputs) {
    if (!input) {
      inputs.emplace_back();
    } else if (is_view || kernel.strided_inputs) {
      inputs.push_back(*input);
    } else {
      copies.push_back(MakeContiguous(*input));
      inputs.push_back(copies.back().ref);
    }
  }
  std::vector<TensorRef> outputs(test_case.outputs);
  std::vector<Tensor> results(test_case.outputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    outputs[i].dtype = inferred.outputs[i].dtype;
    if (!inferred.outputs[i].has_rank() || !inferred.outputs[i].is_static()) {
      if (OpInfo(test_case.op).effects == OpEffects::kDataShape) continue;
      return Fail(ErrorCode::kShapeMismatch, "the shape of output " + std::to_string(i) + " does not follow");
    }
    Dims dims;
    for (const Dim dim : *inferred.outputs[i].dims) dims.push_back(dim.value());
    results[i] = Tensor::Zeros(inferred.outputs[i].dtype, dims);
    outputs[i] = results[i].ref;
  }
  KernelCall call{.op = test_case.op,
                  .attributes = &test_case.attributes,
                  .constants = test_case.constants,
                  .inputs = inputs,
                  .outputs = outputs,
                  .memory = &memory,
                  .random = &test_case.random};
  if (is_view) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      ASSIGN_OR_RETURN(std::optional<TensorRef> view, MakeView(call, static_cast<int>(i), results[i].dims()));
      if (!view) {  // the strides do not allow it: the caller copies first
        copies.push_back(MakeContiguous(inputs[0]));
        inputs[0] = copies.back().ref;
        ASSIGN_OR_RETURN(view, MakeView(call, static_cast<int>(i), results[i].dims()));
      }
      results[i] = MakeContiguous(*view);
    }
    return results;
  }
  RETURN_IF_ERROR(kernel.run(call));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (results[i].buffer == nullptr) results[i] = MakeContiguous(outputs[i]);
  }
  return results;
}

Tensor F32(const Dims& dims, const std::vector<float>& values) {
  return Tensor::Of<float>(DType::kF32, dims, std::span<const float>(values));
}
Tensor I64(const Dims& dims, const std::vector<int64_t>& values) {
  return Tensor::Of<int64_t>(DType::kI64, dims, std::span<const int64_t>(values));
}
Tensor I32(const Dims& dims, const std::vector<int32_t>& values) {
  return Tensor::Of<int32_t>(DType::kI32, dims, std::span<const int32_t>(values));
}
Tensor BoolTensor(const Dims& dims, const std::vector<bool>& values) {
  Tensor tensor = Tensor::Allocate(DType::kBool, dims);
  std::copy(values.begin(), values.end(), tensor.ref.as<bool>());
  return tensor;
}
Tensor Make(DType dtype, const Dims& dims, const std::vector<double>& values) {
  Tensor tensor = Tensor::Allocate(dtype, dims);
  DispatchDType(dtype, [&]<class T>() {
    for (size_t i = 0; i < values.size(); ++i) tensor.ref.as<T>()[i] = kernels::Convert<T>(values[i]);
  });
  return tensor;
}
std::vector<double> Values(const TensorRef& ref) {
  return kernels::ReadFloats(ref);
}

}  // namespace kiln::testing

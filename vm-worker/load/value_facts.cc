#include "vm-worker/load/value_facts.h"

#include <algorithm>
#include <limits>

#include "common/ops/infer.h"
#include "common/ops/kernels/operands.h"

namespace kiln {
namespace {

template <class T>
std::optional<KnownValues> IntegersOf(const Tensor& tensor) {
  KnownValues known;
  for (T value : tensor.values<T>()) {
    if constexpr (std::is_same_v<T, uint64_t>) {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    }
    known.push_back(Dim::Const(static_cast<int64_t>(value)));
  }
  return known;
}

template <class T>
bool StoreInteger(int64_t value, T& slot) {
  slot = static_cast<T>(value);
  if constexpr (std::is_same_v<T, uint64_t>) return value >= 0;
  return static_cast<int64_t>(slot) == value;
}

std::optional<std::vector<double>> FloatsOf(const Tensor& tensor) {
  if (tensor.ref.elements() > limits::kShapeContentsMax || !IsFloat(tensor.dtype())) return std::nullopt;
  return kernels::ReadFloats(tensor.ref);
}

}  // namespace

void ValueFacts::Resize(size_t values) {
  constant.resize(values, -1);
  known.resize(values);
}

std::optional<KnownValues> KnownOfTensor(const Tensor& tensor) {
  if (tensor.ref.elements() > limits::kShapeContentsMax || IsFloat(tensor.dtype())) return std::nullopt;
  return DispatchDType(tensor.dtype(), [&]<class T>() -> std::optional<KnownValues> {
    if constexpr (std::is_integral_v<T>) return IntegersOf<T>(tensor);
    return std::nullopt;
  });
}

std::optional<Tensor> TensorOfKnown(const KnownValues& known, DType dtype, const Dims& dims) {
  if (IsFloat(dtype)) return std::nullopt;
  Tensor tensor = Tensor::Allocate(dtype, dims);
  const bool fits = DispatchDType(dtype, [&]<class T>() -> bool {
    if constexpr (std::is_integral_v<T>) {
      std::span<T> slots = tensor.values<T>();
      for (size_t i = 0; i < known.size(); ++i) {
        if (!known[i].is_const() || !StoreInteger<T>(known[i].value(), slots[i])) return false;
      }
      return true;
    }
    return false;
  });
  if (!fits) return std::nullopt;
  return tensor;
}

bool IsPossible(const SymbolTable& symbols, DType dtype, const std::vector<Dim>& dims) {
  if (dims.size() > static_cast<size_t>(limits::kRankMax)) return false;
  Dims smallest;
  for (Dim dim : dims) {
    const Interval bounds = symbols.Bounds(dim);
    if (bounds.max < 0) return false;
    smallest.push_back(std::max<int64_t>(bounds.min, dim.is_const() ? 0 : 1));
  }
  return CheckedElements(smallest, dtype).has_value();
}

InputFacts InputFactsOf(const Program& program, const Function& function, const Node& node, const ValueFacts& facts) {
  InputFacts inputs;
  for (ValueId input : node.inputs) {
    inputs.descs.push_back(input == kNoValue ? nullptr : &function.values[static_cast<size_t>(input)].desc);
  }
  const auto value_of = [&node](int input) {
    return input < 0 || static_cast<size_t>(input) >= node.inputs.size() ? kNoValue
                                                                         : node.inputs[static_cast<size_t>(input)];
  };
  inputs.known = [&facts, value_of](int input) -> std::optional<KnownValues> {
    const ValueId value = value_of(input);
    return value == kNoValue ? std::nullopt : facts.known[static_cast<size_t>(value)];
  };
  inputs.known_floats = [&facts, &program, value_of](int input) -> std::optional<std::vector<double>> {
    const ConstantId id = facts.ConstantOf(value_of(input));
    return id < 0 ? std::nullopt : FloatsOf(program.constants[static_cast<size_t>(id)].tensor);
  };
  return inputs;
}

Result<NodeFacts> InferNode(const Program& program, SymbolTable& symbols, const Node& node, InputFacts inputs) {
  InferContext context{.symbols = symbols,
                       .op = node.op,
                       .attributes = node.attributes,
                       .constants = program.constants,
                       .inputs = inputs.descs,
                       .known = std::move(inputs.known),
                       .known_floats = std::move(inputs.known_floats)};
  context.outputs.resize(node.outputs.size());
  context.known_outputs.resize(node.outputs.size());
  RETURN_IF_ERROR(InferShapes(context));
  context.known_outputs.resize(node.outputs.size());
  return NodeFacts{std::move(context.outputs), std::move(context.known_outputs)};
}

Result<NodeFacts> InferNode(Program& program, const Function& function, const Node& node, const ValueFacts& facts) {
  return InferNode(program, program.symbols, node, InputFactsOf(program, function, node, facts));
}

}  // namespace kiln

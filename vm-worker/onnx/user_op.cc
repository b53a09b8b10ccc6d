#include "vm-worker/onnx/user_op.h"

#include "schemas/onnx.pb.h"

namespace kiln::onnx {
namespace {

Result<std::string> ArgumentOf(const std::string& name, const AttributeProto& attribute) {
  if (name.empty() || name.find(' ') != std::string::npos)
    return Fail(ErrorCode::kUnsupported, "attribute '" + name + "': a plug-in's attributes have names without spaces");
  switch (KindOf(attribute)) {
    case AttributeKind::kInt:
      return EncodeIntArgument(name, attribute.i());
    case AttributeKind::kFloat:
      return EncodeFloatArgument(name, static_cast<double>(attribute.f()));
    case AttributeKind::kString:
      return EncodeTextArgument(name, attribute.s());
    case AttributeKind::kInts:
      return EncodeIntsArgument(name, {attribute.ints().begin(), attribute.ints().end()});
    case AttributeKind::kFloats:
      return EncodeFloatsArgument(name, {attribute.floats().begin(), attribute.floats().end()});
    case AttributeKind::kUndefined:
    case AttributeKind::kTensor:
    case AttributeKind::kGraph:
    case AttributeKind::kStrings:
    case AttributeKind::kTensors:
    case AttributeKind::kGraphs:
    case AttributeKind::kSparseTensor:
    case AttributeKind::kType:
      break;
  }
  return Fail(ErrorCode::kUnsupported,
              "attribute '" + name + "': plug-ins take integers, floats, lists of them, and texts");
}

}  // namespace

Result<ValueList> EmitUserOp(ProgramBuilder& builder, const UserOp& op, const NodeAttributes& attributes,
                             ValueList inputs, int outputs) {
  while (!inputs.empty() && inputs.back() == kNoValue) inputs.pop_back();
  const int given = static_cast<int>(inputs.size());
  if (given < op.inputs_min || given > op.inputs_max)
    return Fail(ErrorCode::kInvalidArgument, "the node has " + std::to_string(given) + " inputs; plug-in " + op.plugin +
                                                 " takes " + std::to_string(op.inputs_min) + " to " +
                                                 std::to_string(op.inputs_max));
  if (outputs < op.outputs_min || outputs > static_cast<int>(op.outputs.size()))
    return Fail(ErrorCode::kInvalidArgument, "the node has " + std::to_string(outputs) + " outputs; plug-in " +
                                                 op.plugin + " gives " + std::to_string(op.outputs_min) + " to " +
                                                 std::to_string(op.outputs.size()));
  for (int i = 0; i < given; ++i)
    if (inputs[static_cast<size_t>(i)] == kNoValue)
      return Fail(ErrorCode::kInvalidArgument,
                  "input " + std::to_string(i) + " is left out; plug-ins' inputs can be left out at the end only");
  std::vector<std::string> arguments;
  for (const auto& [name, attribute] : attributes.all()) {
    ASSIGN_OR_RETURN(std::string argument, ArgumentOf(name, *attribute));
    arguments.push_back(std::move(argument));
  }
  std::vector<int64_t> dtypes, ranks;
  for (int i = 0; i < outputs; ++i) {
    dtypes.push_back(op.outputs[static_cast<size_t>(i)].dtype);
    ranks.push_back(op.outputs[static_cast<size_t>(i)].rank);
  }
  Attributes written;
  written.Set("domain", op.domain);
  written.Set("type", op.type);
  written.Set("arguments", std::move(arguments));
  written.Set("output_dtypes", std::move(dtypes));
  written.Set("output_ranks", std::move(ranks));
  return builder.Emit(TensorOp::kCallFunc, std::move(inputs), std::move(written), outputs);
}

}  // namespace kiln::onnx

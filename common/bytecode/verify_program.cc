#include <algorithm>

#include "common/base/limits.h"
#include "common/bytecode/program.h"
#include "common/ops/attribute_texts.h"

namespace kiln {
namespace {

std::string Number(int64_t value) {
  return std::to_string(value);
}

std::string_view AttributeTypeName(size_t index) {
  constexpr std::string_view kNames[] = {"Int", "Float", "Text", "Ints", "Floats", "Texts", "Constant", "Dims"};
  return kNames[index];
}

// How many regions an op owns.
size_t RegionCount(TensorOp op) {
  if (op == TensorOp::kIf) return 2;
  return op == TensorOp::kLoop || op == TensorOp::kScan ? 1 : 0;
}

Status VerifyText(std::string_view what, const std::string& text) {
  if (text.size() <= limits::kNameBytesMax) return {};
  return Fail(ErrorCode::kLimitExceeded,
              std::string(what) + " passes " + Number(static_cast<int64_t>(limits::kNameBytesMax)) + " bytes");
}

Status VerifyDims(std::span<const Dim> dims, const SymbolTable& symbols) {
  for (Dim dim : dims) {
    if (!symbols.Owns(dim)) return Fail(ErrorCode::kMalformed, "a dim is not of the program's symbol table");
  }
  return {};
}

Status VerifyDesc(const TensorDesc& desc, const SymbolTable& symbols) {
  if (!DTypeFromNumber(static_cast<int>(desc.dtype))) {
    return Fail(ErrorCode::kMalformed, "dtype number " + Number(static_cast<int>(desc.dtype)) + " does not exist");
  }
  if (!desc.has_rank()) return {};
  if (desc.dims->size() > static_cast<size_t>(limits::kRankMax)) {
    return Fail(ErrorCode::kLimitExceeded, "rank " + Number(static_cast<int64_t>(desc.dims->size())) +
                                               " passes the limit of " + Number(limits::kRankMax));
  }
  RETURN_IF_ERROR(VerifyDims(*desc.dims, symbols));
  // The smallest tensor the description allows must be possible; a dim that may be 0 says nothing about size.
  Dims smallest;
  for (Dim dim : *desc.dims) {
    const Interval bounds = symbols.Bounds(dim);
    if (bounds.max < 0) return Fail(ErrorCode::kInvalidArgument, "dim " + symbols.ToString(dim) + " is negative");
    smallest.push_back(std::max<int64_t>(bounds.min, dim.is_const() ? 0 : 1));
  }
  const auto elements = CheckedElements(smallest, desc.dtype);
  if (!elements) return FailIn(ToString(desc, symbols), elements.error());
  return {};
}

// Verifies one function by walking its regions in execution order.
class FunctionVerifier {
 public:
  FunctionVerifier(const Program& program, const Function& function)
      : program_(program),
        function_(function),
        state_(function.values.size(), State::kUndefined),
        visited_(function.regions.size(), false) {}

  Status Run() {
    RETURN_IF_ERROR(VerifyText("its name", function_.name));
    if (function_.regions.empty()) return Fail(ErrorCode::kMalformed, "it has no body region");
    for (size_t i = 0; i < function_.values.size(); ++i) {
      const Value& value = function_.values[i];
      if (auto status = VerifyDesc(value.desc, program_.symbols); !status) {
        return FailIn(ValueText(static_cast<ValueId>(i)), status.error());
      }
      RETURN_IF_ERROR(VerifyText("the name of value " + Number(static_cast<int64_t>(i)), value.name));
    }
    RETURN_IF_ERROR(VerifyRegion(0, 0));
    for (size_t i = 0; i < visited_.size(); ++i) {
      if (!visited_[i])
        return Fail(ErrorCode::kMalformed, "region " + Number(static_cast<int64_t>(i)) + " has no owner");
    }
    for (size_t i = 0; i < state_.size(); ++i) {
      if (state_[i] == State::kUndefined) {
        return Fail(ErrorCode::kMalformed,
                    ValueText(static_cast<ValueId>(i)) + " is never defined; remove it or define it once");
      }
    }
    return {};
  }

 private:
  enum class State : uint8_t { kUndefined, kVisible, kOutOfScope };

  std::string ValueText(ValueId id) const {
    if (id < 0 || static_cast<size_t>(id) >= function_.values.size()) return "value " + Number(id);
    const std::string& name = function_.values[static_cast<size_t>(id)].name;
    return "value " + Number(id) + (name.empty() ? "" : " \"" + name + "\"");
  }

  const TensorDesc& Desc(ValueId id) const { return function_.values[static_cast<size_t>(id)].desc; }

  Status Define(ValueId id, std::vector<ValueId>& defined) {
    if (id < 0 || static_cast<size_t>(id) >= state_.size()) {
      return Fail(ErrorCode::kMalformed,
                  "it defines value " + Number(id) + " of " + Number(static_cast<int64_t>(state_.size())));
    }
    if (state_[static_cast<size_t>(id)] != State::kUndefined) {
      return Fail(ErrorCode::kMalformed, ValueText(id) + " is defined twice");
    }
    state_[static_cast<size_t>(id)] = State::kVisible;
    defined.push_back(id);
    return {};
  }

  Status Use(ValueId id, std::string_view what) const {
    if (id < 0 || static_cast<size_t>(id) >= state_.size()) {
      return Fail(ErrorCode::kMalformed,
                  std::string(what) + " is value " + Number(id) + " of " + Number(static_cast<int64_t>(state_.size())));
    }
    if (state_[static_cast<size_t>(id)] != State::kVisible) {
      return Fail(ErrorCode::kMalformed, std::string(what) + ", " + ValueText(id) +
                                             ", is not defined before its use in this region or one around it");
    }
    return {};
  }

  Status VerifyRegion(RegionId id, int depth) {
    if (id < 0 || static_cast<size_t>(id) >= function_.regions.size()) {
      return Fail(ErrorCode::kMalformed,
                  "region " + Number(id) + " of " + Number(static_cast<int64_t>(function_.regions.size())));
    }
    if (visited_[static_cast<size_t>(id)]) {
      return Fail(ErrorCode::kMalformed, "region " + Number(id) + " has two owners");
    }
    if (depth > limits::kRegionDepthMax) {
      return Fail(ErrorCode::kLimitExceeded, "regions nest deeper than " + Number(limits::kRegionDepthMax));
    }
    visited_[static_cast<size_t>(id)] = true;
    const Region& region = function_.regions[static_cast<size_t>(id)];
    const std::string where = "region " + Number(id);
    std::vector<ValueId> defined;
    for (ValueId input : region.inputs) {
      if (auto status = Define(input, defined); !status) return FailIn(where, status.error());
    }
    for (size_t i = 0; i < region.nodes.size(); ++i) {
      if (auto status = VerifyNode(region.nodes[i], depth, defined); !status) {
        return FailIn(where + ", node " + Number(static_cast<int64_t>(i)) + NodeText(region.nodes[i]), status.error());
      }
    }
    for (ValueId output : region.outputs) {
      if (auto status = Use(output, "an output"); !status) return FailIn(where, status.error());
    }
    for (ValueId value : defined) state_[static_cast<size_t>(value)] = State::kOutOfScope;
    return {};
  }

  static std::string NodeText(const Node& node) {
    const bool known = TensorOpFromNumber(static_cast<int>(node.op)).has_value();
    std::string text = " (" + (known ? std::string(OpInfo(node.op).name) : "op " + Number(static_cast<int>(node.op)));
    if (!node.name.empty()) text += " \"" + node.name.substr(0, 200) + "\"";
    return text + ")";
  }

  Status VerifyNode(const Node& node, int depth, std::vector<ValueId>& defined) {
    if (!TensorOpFromNumber(static_cast<int>(node.op))) return Fail(ErrorCode::kMalformed, "the op does not exist");
    RETURN_IF_ERROR(VerifyText("its name", node.name));
    RETURN_IF_ERROR(VerifyInputs(node));
    RETURN_IF_ERROR(VerifyAttributes(node));
    if (node.regions.size() != RegionCount(node.op)) {
      return Fail(ErrorCode::kMalformed, "it owns " + Number(static_cast<int64_t>(node.regions.size())) +
                                             " regions instead of " +
                                             Number(static_cast<int64_t>(RegionCount(node.op))));
    }
    for (RegionId region : node.regions) RETURN_IF_ERROR(VerifyRegion(region, depth + 1));
    RETURN_IF_ERROR(VerifyOutputs(node, defined));
    if (!node.regions.empty()) RETURN_IF_ERROR(VerifySignature(node));
    return {};
  }

  static Status VerifyCount(std::string_view what, size_t count, int min, int max) {
    if (count >= static_cast<size_t>(min) && (max == kVariadic || count <= static_cast<size_t>(max))) return {};
    const std::string wanted = min == max         ? Number(min)
                               : max == kVariadic ? Number(min) + " or more"
                                                  : Number(min) + " to " + Number(max);
    return Fail(ErrorCode::kMalformed, "it has " + Number(static_cast<int64_t>(count)) + " " + std::string(what) +
                                           ", " + wanted + " expected");
  }

  Status VerifyInputs(const Node& node) const {
    const TensorOpInfo& info = OpInfo(node.op);
    RETURN_IF_ERROR(VerifyCount("inputs", node.inputs.size(), info.min_inputs, info.max_inputs));
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoValue) {
        const bool loop_limit = node.op == TensorOp::kLoop && i < 2;
        const bool optional = info.max_inputs != kVariadic && i >= static_cast<size_t>(info.min_inputs);
        if (loop_limit || optional) continue;
        return Fail(ErrorCode::kMalformed, "input " + Number(static_cast<int64_t>(i)) + " is required but absent");
      }
      RETURN_IF_ERROR(Use(node.inputs[i], "input " + Number(static_cast<int64_t>(i))));
    }
    return {};
  }

  Status VerifyOutputs(const Node& node, std::vector<ValueId>& defined) {
    const TensorOpInfo& info = OpInfo(node.op);
    RETURN_IF_ERROR(VerifyCount("outputs", node.outputs.size(), info.min_outputs, info.max_outputs));
    for (ValueId output : node.outputs) {
      if (output == kNoValue && info.max_outputs > 1) continue;
      RETURN_IF_ERROR(Define(output, defined));
    }
    if (node.outputs.empty() || node.outputs[0] == kNoValue) return {};
    const TensorDesc& first = Desc(node.outputs[0]);
    std::optional<DType> wanted;
    if (info.dtype_rule == "Bool") wanted = DType::kBool;
    if (info.dtype_rule == "I64") wanted = DType::kI64;
    if (info.dtype_rule == "Same" && !node.inputs.empty()) wanted = Desc(node.inputs[0]).dtype;
    if (info.dtype_rule == "Attr" && !node.inputs.empty()) {
      const int64_t number = node.attributes.Int("to", node.attributes.Int("dtype", -1));
      wanted = number < 0 || number > 255 ? Desc(node.inputs[0]).dtype : DTypeFromNumber(static_cast<int>(number));
    }
    if (wanted && first.dtype != *wanted) {
      return Fail(ErrorCode::kMalformed, ValueText(node.outputs[0]) + " is " + std::string(DTypeName(first.dtype)) +
                                             ", but the op gives " + std::string(DTypeName(*wanted)));
    }
    if (node.op == TensorOp::kConstant) return VerifyConstant(node, first);
    return node.op == TensorOp::kShapeVector ? VerifyShapeVector(node, first) : Status();
  }

  // Whoever makes one takes memory for what the attributes say.
  Status VerifyShapeVector(const Node& node, const TensorDesc& desc) const {
    const auto count = static_cast<int64_t>(node.attributes.Dims("dims").size());
    const bool scalar = node.attributes.Int("scalar", 0) != 0;
    if (scalar && count != 1)
      return Fail(ErrorCode::kMalformed, "a scalar ShapeVector has one dim, not " + Number(count));
    const Dims dims = scalar ? Dims{} : Dims{count};
    if (!desc.has_rank() || desc.dims == StaticDesc(DType::kI64, dims).dims) return {};
    return Fail(ErrorCode::kMalformed, ValueText(node.outputs[0]) + " is " + ToString(desc, program_.symbols) +
                                           ", but the shape is i64" + dims.ToString());
  }

  Status VerifyConstant(const Node& node, const TensorDesc& desc) const {
    const Tensor& tensor = program_.constants[static_cast<size_t>(node.attributes.Constant("value"))].tensor;
    if (desc.dtype != tensor.dtype() || desc.dims != StaticDesc(tensor.dtype(), tensor.dims()).dims) {
      return Fail(ErrorCode::kMalformed, ValueText(node.outputs[0]) + " is " + ToString(desc, program_.symbols) +
                                             ", but the constant is " + std::string(DTypeName(tensor.dtype())) +
                                             tensor.dims().ToString());
    }
    return {};
  }

  Status VerifyAttributes(const Node& node) const {
    for (const Attribute& attribute : node.attributes.all()) {
      const std::string where = "attribute \"" + attribute.name.substr(0, 200) + "\"";
      const OpAttributeInfo* row = FindOpAttribute(node.op, attribute.name);
      if (row == nullptr) return Fail(ErrorCode::kMalformed, where + " is not one of this op's");
      if (attribute.value.index() != static_cast<size_t>(row->type)) {
        return Fail(ErrorCode::kMalformed, where + " is " + std::string(AttributeTypeName(attribute.value.index())) +
                                               " instead of " +
                                               std::string(AttributeTypeName(static_cast<size_t>(row->type))));
      }
      if (const auto* id = std::get_if<ConstantId>(&attribute.value)) {
        if (*id < 0 || static_cast<size_t>(*id) >= program_.constants.size()) {
          return Fail(ErrorCode::kMalformed, where + " names constant " + Number(*id) + " of " +
                                                 Number(static_cast<int64_t>(program_.constants.size())));
        }
      }
      const std::string_view legal = LegalTexts(node.op, attribute.name);
      if (const auto* text = std::get_if<std::string>(&attribute.value)) {
        RETURN_IF_ERROR(VerifyText(where, *text));
        RETURN_IF_ERROR(CheckText(legal, attribute.name, *text, false));
      }
      if (const auto* texts = std::get_if<std::vector<std::string>>(&attribute.value)) {
        for (const std::string& text : *texts) {
          RETURN_IF_ERROR(VerifyText(where, text));
          RETURN_IF_ERROR(CheckText(legal, attribute.name, text, true));
        }
      }
      if (const auto* dims = std::get_if<std::vector<Dim>>(&attribute.value)) {
        if (auto status = VerifyDims(*dims, program_.symbols); !status) return FailIn(where, status.error());
      }
    }
    std::string_view required;
    if (node.op == TensorOp::kConstant) required = "value";
    if (node.op == TensorOp::kShapeVector) required = "dims";
    if (node.op == TensorOp::kScan) required = "num_scan_inputs";
    if (!required.empty() && !node.attributes.Has(required)) {
      return Fail(ErrorCode::kMalformed, "attribute \"" + std::string(required) + "\" is missing");
    }
    return {};
  }

  Status SameDType(ValueId a, std::string_view a_text, ValueId b, std::string_view b_text) const {
    if (a == kNoValue || b == kNoValue || Desc(a).dtype == Desc(b).dtype) return {};
    return Fail(ErrorCode::kMalformed, std::string(a_text) + " is " + std::string(DTypeName(Desc(a).dtype)) + ", but " +
                                           std::string(b_text) + " is " + std::string(DTypeName(Desc(b).dtype)));
  }

  static Status Count(std::string_view what, size_t count, size_t wanted) {
    if (count == wanted) return {};
    return Fail(ErrorCode::kMalformed, "its region has " + Number(static_cast<int64_t>(count)) + " " +
                                           std::string(what) + " instead of " + Number(static_cast<int64_t>(wanted)));
  }

  Status VerifySignature(const Node& node) const {
    if (node.op == TensorOp::kIf) return VerifyIf(node);
    return node.op == TensorOp::kLoop ? VerifyLoop(node) : VerifyScan(node);
  }

  Status VerifyIf(const Node& node) const {
    if (Desc(node.inputs[0]).dtype != DType::kBool) return Fail(ErrorCode::kMalformed, "its condition is not bool");
    for (RegionId id : node.regions) {
      const Region& region = function_.regions[static_cast<size_t>(id)];
      RETURN_IF_ERROR(Count("inputs", region.inputs.size(), 0));
      RETURN_IF_ERROR(Count("outputs", region.outputs.size(), node.outputs.size()));
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        RETURN_IF_ERROR(SameDType(node.outputs[i], "the node's output", region.outputs[i], "the branch's"));
      }
    }
    return {};
  }

  Status VerifyLoop(const Node& node) const {
    const Region& region = function_.regions[static_cast<size_t>(node.regions[0])];
    const size_t states = node.inputs.size() - 2;
    RETURN_IF_ERROR(Count("inputs", region.inputs.size(), states + 2));
    RETURN_IF_ERROR(Count("outputs", region.outputs.size(), node.outputs.size() + 1));
    if (node.outputs.size() < states) {
      return Fail(ErrorCode::kMalformed, "it has " + Number(static_cast<int64_t>(node.outputs.size())) +
                                             " outputs for " + Number(static_cast<int64_t>(states)) + " states");
    }
    const auto is = [&](ValueId id, DType dtype) { return id == kNoValue || Desc(id).dtype == dtype; };
    if (!is(node.inputs[0], DType::kI64) || !is(region.inputs[0], DType::kI64)) {
      return Fail(ErrorCode::kMalformed, "trip count and iteration number are i64");
    }
    if (!is(node.inputs[1], DType::kBool) || !is(region.inputs[1], DType::kBool) ||
        !is(region.outputs[0], DType::kBool)) {
      return Fail(ErrorCode::kMalformed, "loop conditions are bool");
    }
    for (size_t i = 0; i < states; ++i) {
      RETURN_IF_ERROR(
          SameDType(node.inputs[i + 2], "a state's first value", region.inputs[i + 2], "the region's input"));
    }
    for (size_t i = 0; i < states; ++i) {
      RETURN_IF_ERROR(SameDType(region.inputs[i + 2], "a state", region.outputs[i + 1], "its next value"));
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      RETURN_IF_ERROR(SameDType(node.outputs[i], "the node's output", region.outputs[i + 1], "the region's"));
    }
    return {};
  }

  Status VerifyScan(const Node& node) const {
    const Region& region = function_.regions[static_cast<size_t>(node.regions[0])];
    const int64_t scanned = node.attributes.Int("num_scan_inputs", 0);
    if (scanned < 1 || scanned > static_cast<int64_t>(node.inputs.size())) {
      return Fail(ErrorCode::kMalformed, "num_scan_inputs is " + Number(scanned) + " of " +
                                             Number(static_cast<int64_t>(node.inputs.size())) + " inputs");
    }
    const size_t states = node.inputs.size() - static_cast<size_t>(scanned);
    RETURN_IF_ERROR(Count("inputs", region.inputs.size(), node.inputs.size()));
    RETURN_IF_ERROR(Count("outputs", region.outputs.size(), node.outputs.size()));
    if (node.outputs.size() < states) return Fail(ErrorCode::kMalformed, "it has fewer outputs than states");
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      RETURN_IF_ERROR(SameDType(node.inputs[i], "an input", region.inputs[i], "the region's"));
    }
    for (size_t i = 0; i < states; ++i) {
      RETURN_IF_ERROR(SameDType(region.inputs[i], "a state", region.outputs[i], "its next value"));
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      RETURN_IF_ERROR(SameDType(node.outputs[i], "an output", region.outputs[i], "the region's"));
    }
    return {};
  }

  const Program& program_;
  const Function& function_;
  std::vector<State> state_;
  std::vector<bool> visited_;
};

Status VerifyConstants(const Program& program) {
  for (size_t i = 0; i < program.constants.size(); ++i) {
    const Constant& constant = program.constants[i];
    const std::string where =
        "constant " + Number(static_cast<int64_t>(i)) + " \"" + constant.name.substr(0, 200) + "\"";
    RETURN_IF_ERROR(VerifyText("the name of constant " + Number(static_cast<int64_t>(i)), constant.name));
    const auto elements = CheckedElements(constant.tensor.dims(), constant.tensor.dtype());
    if (!elements) return FailIn(where, elements.error());
    if (!constant.tensor.ref.IsContiguous()) return Fail(ErrorCode::kMalformed, where + " is not contiguous");
    if (*elements > 0 && constant.tensor.ref.data == nullptr)
      return Fail(ErrorCode::kMalformed, where + " has no data");
    if (constant.tensor.dtype() == DType::kBool) {
      // Other bytes than 0 and 1 in a bool are undefined behaviour for whoever reads it.
      const uint8_t* bytes = constant.tensor.ref.as<const uint8_t>();
      const bool valid = std::all_of(bytes, bytes + *elements, [](uint8_t byte) { return byte <= 1; });
      if (!valid) return Fail(ErrorCode::kMalformed, where + " holds a bool that is neither 0 nor 1");
    }
  }
  return {};
}

Status VerifySizes(const Program& program) {
  size_t nodes = 0, values = 0;
  for (const Function& function : program.functions) {
    values += function.values.size();
    for (const Region& region : function.regions) nodes += region.nodes.size();
  }
  if (nodes > limits::kProgramNodesMax || values > limits::kProgramValuesMax) {
    return Fail(ErrorCode::kLimitExceeded, "the program has " + Number(static_cast<int64_t>(nodes)) + " nodes and " +
                                               Number(static_cast<int64_t>(values)) + " values; the limits are " +
                                               Number(limits::kProgramNodesMax) + " and " +
                                               Number(limits::kProgramValuesMax));
  }
  return {};
}

}  // namespace

Status VerifyProgram(const Program& program) {
  if (program.functions.empty()) return Fail(ErrorCode::kMalformed, "the program has no function");
  RETURN_IF_ERROR(VerifySizes(program));
  RETURN_IF_ERROR(VerifyText("the program's name", program.name));
  for (const Constraint& constraint : program.symbols.constraints()) {
    const Dim sides[] = {constraint.left, constraint.right};
    if (auto status = VerifyDims(sides, program.symbols); !status) return FailIn("a constraint", status.error());
  }
  RETURN_IF_ERROR(VerifyConstants(program));
  for (const Function& function : program.functions) {
    if (auto status = FunctionVerifier(program, function).Run(); !status) {
      return FailIn("function \"" + function.name.substr(0, 200) + "\"", status.error());
    }
  }
  return {};
}

}  // namespace kiln

#include <algorithm>
#include <map>

#include "common/base/limits.h"
#include "common/bytecode/program_codec.h"
#include "schemas/program_generated.h"

namespace kiln {
namespace {

using flatbuffers::Offset;

class ProgramEncoder {
 public:
  ProgramEncoder(const Program& program, const EncodeOptions& options) : program_(program), options_(options) {}

  Result<std::vector<uint8_t>> Run() {
    RETURN_IF_ERROR(CheckSize());
    std::vector<Offset<wire::ProgramConstant>> constants;
    for (size_t i = 0; i < program_.constants.size(); ++i) constants.push_back(EncodeConstant(i));
    std::vector<Offset<wire::ProgramFunction>> functions;
    for (const Function& function : program_.functions) functions.push_back(EncodeFunction(function));
    std::vector<Offset<wire::ProgramSymbol>> symbols;
    for (size_t i = 0; i < program_.symbols.symbol_count(); ++i) {
      const Symbol& symbol = program_.symbols.symbol(static_cast<SymbolId>(i));
      symbols.push_back(wire::CreateProgramSymbol(builder_, builder_.CreateString(symbol.name), symbol.range.min,
                                                  symbol.range.max, symbol.divisor));
    }
    std::vector<wire::ProgramConstraint> constraints;
    for (const Constraint& constraint : program_.symbols.constraints()) {
      const wire::DimRef right = EncodeDim(constraint.right), left = EncodeDim(constraint.left);  // in this order
      constraints.emplace_back(static_cast<uint8_t>(constraint.kind), left, right);
    }
    std::vector<Offset<wire::DimExpression>> expressions;
    for (Dim dim : expressions_) {
      expressions.push_back(wire::CreateDimExpression(builder_, builder_.CreateVector(program_.symbols.Encode(dim))));
    }
    const Digest prefix = TensorOpTablePrefix(op_rows_);
    const wire::Digest32 digest(flatbuffers::span<const uint8_t, kDigestBytes>(prefix.bytes.data(), kDigestBytes));
    // One after the other: a compiler is free in the order of arguments, and the same program is the same bytes.
    const auto name = builder_.CreateString(program_.name);
    const auto all_functions = builder_.CreateVector(functions);
    const auto all_constants = builder_.CreateVector(constants);
    const auto all_constraints = builder_.CreateVectorOfStructs(constraints);
    const auto all_expressions = builder_.CreateVector(expressions);
    const auto all_symbols = builder_.CreateVector(symbols);
    builder_.Finish(wire::CreateProgram(builder_, name, static_cast<uint32_t>(op_rows_), &digest, all_symbols,
                                        all_expressions, all_constraints, all_constants, all_functions),
                    wire::ProgramIdentifier());
    return std::vector<uint8_t>(builder_.GetBufferPointer(), builder_.GetBufferPointer() + builder_.GetSize());
  }

 private:
  // The builder must never pass its own limit: constants, and a generous bound for everything else.
  Status CheckSize() const {
    size_t bytes = 4096;
    for (size_t i = 0; i < program_.constants.size(); ++i) {
      bytes += 256 + program_.constants[i].name.size();
      const bool external = options_.placement && options_.placement(static_cast<ConstantId>(i));
      if (!external) bytes += static_cast<size_t>(program_.constants[i].tensor.ref.bytes());
    }
    if (bytes <= limits::kProgramBytesMax / 2) return {};
    return Fail(ErrorCode::kLimitExceeded, "the constants of program \"" + program_.name + "\" take " +
                                               std::to_string(bytes) +
                                               " bytes; place the weights in a file of their own");
  }

  wire::DimRef EncodeDim(Dim dim) {
    switch (dim.kind()) {
      case Dim::Kind::kConst:
        return wire::DimRef(0, dim.value());
      case Dim::Kind::kSymbol:
        return wire::DimRef(1, dim.symbol());
      case Dim::Kind::kExpr:
        break;
    }
    const auto [found, is_new] = expression_ids_.emplace(program_.symbols.Encode(dim), expressions_.size());
    if (is_new) expressions_.push_back(dim);
    return wire::DimRef(2, static_cast<int64_t>(found->second));
  }

  std::vector<wire::DimRef> EncodeDims(std::span<const Dim> dims) {
    std::vector<wire::DimRef> refs;
    for (Dim dim : dims) refs.push_back(EncodeDim(dim));
    return refs;
  }

  Offset<wire::ProgramConstant> EncodeConstant(size_t i) {
    const Constant& constant = program_.constants[i];
    const Tensor& tensor = constant.tensor;
    const auto place = options_.placement ? options_.placement(static_cast<ConstantId>(i)) : std::nullopt;
    Offset<flatbuffers::Vector<uint8_t>> data;
    if (!place) {
      const size_t bytes = static_cast<size_t>(tensor.ref.bytes());
      builder_.ForceVectorAlignment(bytes, 1, 32);  // the largest FlatBuffers knows
      data = builder_.CreateVector(tensor.ref.as<const uint8_t>(), bytes);
    }
    const auto name = builder_.CreateString(constant.name);
    const auto dims = builder_.CreateVector(tensor.dims().begin(), tensor.dims().size());
    return wire::CreateProgramConstant(builder_, name, static_cast<uint8_t>(tensor.dtype()), dims,
                                       constant.is_immediate, data, place.has_value(), place.value_or(0));
  }

  Offset<wire::ProgramFunction> EncodeFunction(const Function& function) {
    std::vector<Offset<wire::ProgramValue>> values;
    for (const Value& value : function.values) {
      Offset<flatbuffers::Vector<const wire::DimRef*>> dims;
      if (value.desc.has_rank()) dims = builder_.CreateVectorOfStructs(EncodeDims(*value.desc.dims));
      values.push_back(wire::CreateProgramValue(
          builder_, builder_.CreateString(value.name), static_cast<uint8_t>(value.desc.dtype), dims,
          static_cast<uint8_t>(value.desc.layout), value.desc.is_view, static_cast<uint8_t>(value.desc.alignment),
          static_cast<uint8_t>(value.desc.device)));
    }
    std::vector<Offset<wire::ProgramRegion>> regions;
    for (const Region& region : function.regions) {
      std::vector<Offset<wire::ProgramNode>> nodes;
      for (const Node& node : region.nodes) nodes.push_back(EncodeNode(node));
      const auto inputs = builder_.CreateVector(region.inputs);
      const auto all = builder_.CreateVector(nodes);
      regions.push_back(wire::CreateProgramRegion(builder_, inputs, all, builder_.CreateVector(region.outputs)));
    }
    const auto name = builder_.CreateString(function.name);
    const auto all = builder_.CreateVector(values);
    return wire::CreateProgramFunction(builder_, name, all, builder_.CreateVector(regions));
  }

  Offset<wire::ProgramNode> EncodeNode(const Node& node) {
    int row = 0;
    while (TensorOpRow(row).op != node.op) ++row;
    op_rows_ = std::max(op_rows_, row + 1);
    std::vector<Offset<wire::ProgramAttribute>> attributes;
    for (const Attribute& attribute : node.attributes.all()) attributes.push_back(EncodeAttribute(attribute));
    const auto name = builder_.CreateString(node.name);
    const auto inputs = builder_.CreateVector(node.inputs);
    const auto outputs = builder_.CreateVector(node.outputs);
    const auto all = builder_.CreateVector(attributes);
    return wire::CreateProgramNode(builder_, static_cast<uint16_t>(node.op), name, inputs, outputs, all,
                                   builder_.CreateVector(node.regions));
  }

  Offset<wire::ProgramAttribute> EncodeAttribute(const Attribute& attribute) {
    struct Lists {
      std::vector<int64_t> ints;
      std::vector<double> floats;
      std::vector<std::string> texts;
      std::vector<Dim> dims;
      void operator()(int64_t value) { ints = {value}; }
      void operator()(double value) { floats = {value}; }
      void operator()(const std::string& value) { texts = {value}; }
      void operator()(const std::vector<int64_t>& value) { ints = value; }
      void operator()(const std::vector<double>& value) { floats = value; }
      void operator()(const std::vector<std::string>& value) { texts = value; }
      void operator()(ConstantId value) { ints = {value}; }
      void operator()(const std::vector<Dim>& value) { dims = value; }
    } lists;
    std::visit([&](const auto& value) { lists(value); }, attribute.value);
    const auto name = builder_.CreateString(attribute.name);
    const auto ints = builder_.CreateVector(lists.ints);
    const auto floats = builder_.CreateVector(lists.floats);
    const auto texts = builder_.CreateVectorOfStrings(lists.texts);
    return wire::CreateProgramAttribute(builder_, name, static_cast<uint8_t>(attribute.value.index()), ints, floats,
                                        texts, builder_.CreateVectorOfStructs(EncodeDims(lists.dims)));
  }

  const Program& program_;
  const EncodeOptions& options_;
  flatbuffers::FlatBufferBuilder builder_;
  std::map<std::vector<int64_t>, size_t> expression_ids_;
  std::vector<Dim> expressions_;
  int op_rows_ = 0;
};

}  // namespace

Result<std::vector<uint8_t>> EncodeProgram(const Program& program, const EncodeOptions& options) {
  return ProgramEncoder(program, options).Run();
}

}  // namespace kiln

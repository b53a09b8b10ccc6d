#include <algorithm>
#include <cstring>

#include "common/base/flatbuffer.h"
#include "common/base/limits.h"
#include "common/bytecode/program_codec.h"
#include "schemas/program_generated.h"

namespace kiln {
namespace {

std::unexpected<Error> Bad(const std::string& what) {
  return Fail(ErrorCode::kMalformed, what);
}

class ProgramDecoder {
 public:
  ProgramDecoder(std::span<const uint8_t> bytes, const DecodeOptions& options)
      : options_(options), budget_(bytes.size()) {}

  Result<Program> Run(const wire::Program& root) {
    RETURN_IF_ERROR(CheckOpTable(root));
    ASSIGN_OR_RETURN(program_.name, Text(root.name()));
    RETURN_IF_ERROR(DecodeSymbols(root));
    ASSIGN_OR_RETURN(const size_t constants, Count(root.constants()));
    for (size_t i = 0; i < constants; ++i) {
      auto constant = DecodeConstant(*root.constants()->Get(static_cast<uint32_t>(i)));
      if (!constant) return FailIn("constant " + std::to_string(i), constant.error());
      program_.constants.push_back(*std::move(constant));
    }
    ASSIGN_OR_RETURN(const size_t functions, Count(root.functions()));
    for (size_t i = 0; i < functions; ++i) {
      auto function = DecodeFunction(*root.functions()->Get(static_cast<uint32_t>(i)));
      if (!function) return FailIn("function " + std::to_string(i), function.error());
      program_.functions.push_back(*std::move(function));
    }
    RETURN_IF_ERROR(VerifyProgram(program_));
    return std::move(program_);
  }

 private:
  // Honest bytes hold each object once. Objects that are referred to many times would unfold into far more memory than
  // the input has bytes, so every object read is paid for from a budget of that size.
  Status Pay(size_t bytes) {
    if (bytes > budget_) return Bad("the program refers to the same bytes more than once");
    budget_ -= bytes;
    return {};
  }

  template <class T>
  Result<size_t> Count(const flatbuffers::Vector<T>* list) {
    if (list == nullptr) return size_t{0};
    RETURN_IF_ERROR(Pay(4 + size_t{list->size()} * ElementBytes<T>()));
    return size_t{list->size()};
  }

  // An element in the list; an offset also pays for the table header it points at, the rest is its reader's to pay.
  template <class T>
  static constexpr size_t ElementBytes() {
    if constexpr (std::is_pointer_v<T>) {
      return sizeof(std::remove_pointer_t<T>);
    } else if constexpr (std::is_arithmetic_v<T>) {
      return sizeof(T);
    } else {
      return 4 + 4;
    }
  }

  Result<std::string> Text(const flatbuffers::String* text) {
    if (text == nullptr) return std::string();
    RETURN_IF_ERROR(Pay(4 + size_t{text->size()}));
    if (text->size() > limits::kNameBytesMax) {
      return Fail(ErrorCode::kLimitExceeded, "a text of " + std::to_string(text->size()) +
                                                 " bytes passes the limit of " + std::to_string(limits::kNameBytesMax));
    }
    return text->str();
  }

  template <class T>
  Result<std::vector<T>> List(const flatbuffers::Vector<T>* list) {
    ASSIGN_OR_RETURN(const size_t count, Count(list));
    std::vector<T> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = list->Get(static_cast<uint32_t>(i));
    return values;
  }

  Status CheckOpTable(const wire::Program& root) const {
    if (root.op_rows() > static_cast<uint32_t>(TensorOpCount())) {
      return Fail(ErrorCode::kUnsupported, "the program needs " + std::to_string(root.op_rows()) +
                                               " tensor ops, this build has " + std::to_string(TensorOpCount()) +
                                               "; update this binary");
    }
    const Digest prefix = TensorOpTablePrefix(static_cast<int>(root.op_rows()));
    const auto* written = root.op_prefix();
    if (written == nullptr || !std::equal(prefix.bytes.begin(), prefix.bytes.end(), written->bytes()->begin())) {
      return Fail(ErrorCode::kUnsupported, "the program was written with another tensor op table");
    }
    return {};
  }

  Status DecodeSymbols(const wire::Program& root) {
    ASSIGN_OR_RETURN(const size_t symbols, Count(root.symbols()));
    for (size_t i = 0; i < symbols; ++i) {
      const auto& symbol = *root.symbols()->Get(static_cast<uint32_t>(i));
      ASSIGN_OR_RETURN(const std::string name, Text(symbol.name()));
      if (name.empty() || program_.symbols.FindSymbol(name)) {
        return Bad("symbol " + std::to_string(i) + " needs a name that no other has");
      }
      RETURN_IF_ERROR(program_.symbols.AddSymbol(name, {symbol.min(), symbol.max()}, symbol.divisor()));
    }
    ASSIGN_OR_RETURN(const size_t expressions, Count(root.expressions()));
    for (size_t i = 0; i < expressions; ++i) {
      ASSIGN_OR_RETURN(const auto code, List(root.expressions()->Get(static_cast<uint32_t>(i))->code()));
      auto dim = program_.symbols.Decode(code);
      if (!dim) return FailIn("expression " + std::to_string(i), dim.error());
      expressions_.push_back(*dim);
    }
    ASSIGN_OR_RETURN(const size_t constraints, Count(root.constraints()));
    for (size_t i = 0; i < constraints; ++i)
      RETURN_IF_ERROR(DecodeConstraint(*root.constraints()->Get(static_cast<uint32_t>(i))));
    return {};
  }

  Status DecodeConstraint(const wire::ProgramConstraint& constraint) {
    ASSIGN_OR_RETURN(const Dim left, DecodeDim(constraint.left()));
    ASSIGN_OR_RETURN(const Dim right, DecodeDim(constraint.right()));
    const std::optional<ConstraintKind> kind = ConstraintKindFromNumber(constraint.kind());
    if (!kind) return Bad("constraint kind " + std::to_string(constraint.kind()) + " does not exist");
    program_.symbols.AddConstraint({*kind, left, right});
    return {};
  }

  Result<Dim> DecodeDim(const wire::DimRef& ref) const {
    const int64_t value = ref.value();
    const auto below = [value](size_t count) { return value >= 0 && static_cast<uint64_t>(value) < count; };
    if (ref.kind() == 0) return Dim::Const(value);
    if (ref.kind() == 1 && below(program_.symbols.symbol_count())) {
      return program_.symbols.SymbolDim(static_cast<SymbolId>(value));
    }
    if (ref.kind() == 2 && below(expressions_.size())) return expressions_[static_cast<size_t>(value)];
    return Bad("a dim of kind " + std::to_string(ref.kind()) + " refers to " + std::to_string(value));
  }

  Result<std::vector<Dim>> DecodeDims(const flatbuffers::Vector<const wire::DimRef*>* list) {
    ASSIGN_OR_RETURN(const size_t count, Count(list));
    std::vector<Dim> dims;
    for (size_t i = 0; i < count; ++i) {
      ASSIGN_OR_RETURN(const Dim dim, DecodeDim(*list->Get(static_cast<uint32_t>(i))));
      dims.push_back(dim);
    }
    return dims;
  }

  static Result<DType> DecodeDType(uint8_t number) {
    const auto dtype = DTypeFromNumber(number);
    if (!dtype) return Bad("dtype number " + std::to_string(number) + " does not exist");
    return *dtype;
  }

  Result<Constant> DecodeConstant(const wire::ProgramConstant& constant) {
    Constant result;
    ASSIGN_OR_RETURN(result.name, Text(constant.name()));
    ASSIGN_OR_RETURN(const DType dtype, DecodeDType(constant.dtype()));
    ASSIGN_OR_RETURN(const auto sizes, List(constant.dims()));
    if (sizes.size() > static_cast<size_t>(limits::kRankMax)) return Bad("rank " + std::to_string(sizes.size()));
    const Dims dims{std::span<const int64_t>(sizes)};
    result.is_immediate = constant.immediate();
    if (constant.external()) {
      ASSIGN_OR_RETURN(result.tensor, FetchWeight(options_.weights, dtype, dims, constant.offset()));
      return result;
    }
    ASSIGN_OR_RETURN(const int64_t elements, CheckedElements(dims, dtype));
    ASSIGN_OR_RETURN(const size_t bytes, Count(constant.data()));
    if (bytes != static_cast<size_t>(elements * DTypeBytes(dtype))) {
      return Bad(std::to_string(bytes) + " bytes of data for " + std::string(DTypeName(dtype)) + dims.ToString());
    }
    const uint8_t* data = constant.data() == nullptr ? nullptr : constant.data()->data();
    const bool aligned = reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(DTypeBytes(dtype)) == 0;
    if (options_.owner != nullptr && bytes > 0 && aligned) {
      auto buffer = Buffer::Wrap(const_cast<uint8_t*>(data), bytes, options_.owner);
      const TensorRef ref = MakeRef(dtype, dims, buffer->data());
      result.tensor = {ref, std::move(buffer)};
    } else {
      result.tensor = Tensor::Allocate(dtype, dims);
      if (bytes > 0) std::memcpy(result.tensor.ref.data, data, bytes);
    }
    return result;
  }

  Result<TensorDesc> DecodeDesc(const wire::ProgramValue& value) {
    TensorDesc desc;
    ASSIGN_OR_RETURN(desc.dtype, DecodeDType(value.dtype()));
    if (value.dims() != nullptr) {
      ASSIGN_OR_RETURN(desc.dims, DecodeDims(value.dims()));
    }
    if (value.layout() > static_cast<uint8_t>(LayoutClass::kBlocked) ||
        value.alignment() > static_cast<uint8_t>(AlignmentClass::k64) ||
        value.device() > static_cast<uint8_t>(Device::kCuda)) {
      return Bad("layout " + std::to_string(value.layout()) + ", alignment " + std::to_string(value.alignment()) +
                 " or device " + std::to_string(value.device()) + " does not exist");
    }
    desc.layout = static_cast<LayoutClass>(value.layout());
    desc.is_view = value.is_view();
    desc.alignment = static_cast<AlignmentClass>(value.alignment());
    desc.device = static_cast<Device>(value.device());
    return desc;
  }

  Result<Function> DecodeFunction(const wire::ProgramFunction& function) {
    Function result;
    ASSIGN_OR_RETURN(result.name, Text(function.name()));
    ASSIGN_OR_RETURN(const size_t values, Count(function.values()));
    for (size_t i = 0; i < values; ++i) {
      const auto& value = *function.values()->Get(static_cast<uint32_t>(i));
      auto desc = DecodeDesc(value);
      if (!desc) return FailIn("value " + std::to_string(i), desc.error());
      ASSIGN_OR_RETURN(std::string name, Text(value.name()));
      result.values.push_back({std::move(name), *std::move(desc)});
    }
    ASSIGN_OR_RETURN(const size_t regions, Count(function.regions()));
    for (size_t i = 0; i < regions; ++i) {
      const auto& region = *function.regions()->Get(static_cast<uint32_t>(i));
      Region decoded;
      ASSIGN_OR_RETURN(decoded.inputs, List(region.inputs()));
      ASSIGN_OR_RETURN(decoded.outputs, List(region.outputs()));
      ASSIGN_OR_RETURN(const size_t nodes, Count(region.nodes()));
      for (size_t j = 0; j < nodes; ++j) {
        auto node = DecodeNode(*region.nodes()->Get(static_cast<uint32_t>(j)));
        if (!node) return FailIn("region " + std::to_string(i) + ", node " + std::to_string(j), node.error());
        decoded.nodes.push_back(*std::move(node));
      }
      result.regions.push_back(std::move(decoded));
    }
    return result;
  }

  Result<Node> DecodeNode(const wire::ProgramNode& node) {
    const auto op = TensorOpFromNumber(node.op());
    if (!op) return Fail(ErrorCode::kUnsupported, "tensor op number " + std::to_string(node.op()) + " does not exist");
    Node result;
    result.op = *op;
    ASSIGN_OR_RETURN(result.name, Text(node.name()));
    ASSIGN_OR_RETURN(result.inputs, List(node.inputs()));
    ASSIGN_OR_RETURN(result.outputs, List(node.outputs()));
    ASSIGN_OR_RETURN(result.regions, List(node.regions()));
    ASSIGN_OR_RETURN(const size_t attributes, Count(node.attributes()));
    for (size_t i = 0; i < attributes; ++i) {
      const auto& attribute = *node.attributes()->Get(static_cast<uint32_t>(i));
      ASSIGN_OR_RETURN(const std::string name, Text(attribute.name()));
      if (!result.attributes.all().empty() && result.attributes.all().back().name >= name) {
        return Bad("attribute \"" + name + "\" is out of order");
      }
      auto value = DecodeAttribute(attribute);
      if (!value) return FailIn("attribute \"" + name + "\"", value.error());
      result.attributes.Set(name, *std::move(value));
    }
    return result;
  }

  Result<AttributeValue> DecodeAttribute(const wire::ProgramAttribute& attribute) {
    ASSIGN_OR_RETURN(auto ints, List(attribute.ints()));
    ASSIGN_OR_RETURN(auto floats, List(attribute.floats()));
    ASSIGN_OR_RETURN(auto dims, DecodeDims(attribute.dims()));
    std::vector<std::string> texts;
    ASSIGN_OR_RETURN(const size_t text_count, Count(attribute.texts()));
    for (size_t i = 0; i < text_count; ++i) {
      ASSIGN_OR_RETURN(std::string text, Text(attribute.texts()->Get(static_cast<uint32_t>(i))));
      texts.push_back(std::move(text));
    }
    if (attribute.type() > static_cast<uint8_t>(AttributeType::kDims)) {
      return Bad("type " + std::to_string(attribute.type()) + " does not exist");
    }
    const auto type = static_cast<AttributeType>(attribute.type());
    const std::string one = "a single value is expected";
    switch (type) {
      case AttributeType::kInt:
        if (ints.size() != 1) return Bad(one);
        return AttributeValue(ints[0]);
      case AttributeType::kFloat:
        if (floats.size() != 1) return Bad(one);
        return AttributeValue(floats[0]);
      case AttributeType::kText:
        if (texts.size() != 1) return Bad(one);
        return AttributeValue(std::move(texts[0]));
      case AttributeType::kInts:
        return AttributeValue(std::move(ints));
      case AttributeType::kFloats:
        return AttributeValue(std::move(floats));
      case AttributeType::kTexts:
        return AttributeValue(std::move(texts));
      case AttributeType::kConstant:
        if (ints.size() != 1 || ints[0] < 0 || ints[0] > INT32_MAX) return Bad("a constant's number is expected");
        return AttributeValue(static_cast<ConstantId>(ints[0]));
      case AttributeType::kDims:
        return AttributeValue(std::move(dims));
    }
    __builtin_unreachable();
  }

  const DecodeOptions& options_;
  size_t budget_;
  Program program_;
  std::vector<Dim> expressions_;
};

}  // namespace

Result<Program> DecodeProgram(std::span<const uint8_t> bytes, const DecodeOptions& options) {
  if (bytes.size() >= limits::kProgramBytesMax) {
    return Fail(ErrorCode::kLimitExceeded, "a program of " + std::to_string(bytes.size()) +
                                               " bytes passes the limit of " +
                                               std::to_string(limits::kProgramBytesMax));
  }
  // Reading in place needs aligned bytes.
  if (reinterpret_cast<uintptr_t>(bytes.data()) % alignof(uint64_t) != 0) {
    const auto copy = Buffer::Allocate(bytes.size());
    std::memcpy(copy->data(), bytes.data(), bytes.size());
    return DecodeProgram({static_cast<const uint8_t*>(copy->data()), copy->size()}, {options.weights, copy});
  }
  constexpr FlatBufferBounds kBounds{.tables = 4 * (limits::kProgramNodesMax + limits::kProgramValuesMax)};
  ASSIGN_OR_RETURN(const wire::Program* root,
                   VerifiedRoot<wire::Program>(bytes, "program", wire::ProgramIdentifier(), kBounds));
  return ProgramDecoder(bytes, options).Run(*root);
}

}  // namespace kiln

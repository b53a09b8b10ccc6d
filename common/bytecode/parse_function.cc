// Functions of the text form.
#include "common/bytecode/parse_function.h"

#include <charconv>

#include "common/base/limits.h"
#include "common/bytecode/tensor_text.h"

namespace kiln {
namespace {

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

// A definition as written; it gets its id when its place in the order is known.
struct Definition {
  size_t offset = 0;
  bool absent = false;
  bool by_name = false;
  std::optional<int64_t> id;
  Value value;
};

class FunctionParser {
 public:
  FunctionParser(TextReader& reader, Program& program, const std::unordered_map<std::string, ConstantId>& constants)
      : reader_(reader), program_(program), constants_(constants) {}

  Result<Function> Run() {
    ASSIGN_OR_RETURN(function_.name, reader_.NameOrQuoted());
    RETURN_IF_ERROR(ParseRegion(0));
    return Finish();
  }

 private:
  Result<Function> Finish() {
    function_.values.resize(values_.size());
    std::vector<bool> seen(values_.size(), false);
    for (auto& [id, value] : values_) {
      if (static_cast<size_t>(id) >= values_.size() || seen[static_cast<size_t>(id)]) {
        return reader_.Wrong("value id " + std::to_string(id) + " is used twice or leaves a gap");
      }
      seen[static_cast<size_t>(id)] = true;
      function_.values[static_cast<size_t>(id)] = std::move(value);
    }
    std::vector<bool> used(regions_.size(), false);
    function_.regions.resize(regions_.size());
    for (auto& [id, region] : regions_) {
      if (static_cast<size_t>(id) >= regions_.size() || used[static_cast<size_t>(id)]) {
        return reader_.Wrong("region id " + std::to_string(id) + " is used twice or leaves a gap");
      }
      used[static_cast<size_t>(id)] = true;
      function_.regions[static_cast<size_t>(id)] = std::move(region);
    }
    return std::move(function_);
  }

  Result<int64_t> Id(size_t limit) {
    ASSIGN_OR_RETURN(const int64_t id, reader_.Int());
    if (id < 0 || static_cast<uint64_t>(id) >= limit)
      return reader_.Wrong("id " + std::to_string(id) + " is out of range");
    return id;
  }

  Result<RegionId> ParseRegion(int depth) {
    if (depth > limits::kRegionDepthMax) {
      return reader_.Wrong("regions nest deeper than " + std::to_string(limits::kRegionDepthMax));
    }
    int64_t id = next_region_++;
    if (reader_.Take("#")) {
      ASSIGN_OR_RETURN(id, Id(limits::kProgramNodesMax));
    }
    Region region;
    RETURN_IF_ERROR(reader_.Expect("("));
    while (!reader_.Take(")")) {
      if (!region.inputs.empty()) RETURN_IF_ERROR(reader_.Expect(","));
      ASSIGN_OR_RETURN(Definition input, ParseDefinition());
      ASSIGN_OR_RETURN(const ValueId value, Define(std::move(input)));
      region.inputs.push_back(value);
    }
    RETURN_IF_ERROR(reader_.Expect("->"));
    // The outputs stand before the nodes that define them: they are read once the nodes are known.
    const size_t outputs = reader_.offset();
    RETURN_IF_ERROR(reader_.Expect("("));
    RETURN_IF_ERROR(SkipOutputs());
    RETURN_IF_ERROR(reader_.Expect("{"));
    while (!reader_.Take("}")) {
      ASSIGN_OR_RETURN(Node node, ParseNode(depth));
      region.nodes.push_back(std::move(node));
      if (++nodes_ > limits::kProgramNodesMax) {
        return reader_.Wrong("more than " + std::to_string(limits::kProgramNodesMax) + " nodes");
      }
    }
    const size_t end = reader_.offset();
    reader_.Rewind(outputs);
    ASSIGN_OR_RETURN(region.outputs, ParseUses());
    reader_.Rewind(end);
    regions_.emplace_back(static_cast<RegionId>(id), std::move(region));
    return static_cast<RegionId>(id);
  }

  Status SkipOutputs() {
    ASSIGN_OR_RETURN(const std::string_view skipped, reader_.Until(")"));
    (void)skipped;
    return reader_.Expect(")");
  }

  // `%name`, `%name#id`, `%id`, `%id "name"` or `_`, and the desc behind a colon.
  Result<Definition> ParseDefinition() {
    Definition definition;
    reader_.Peek();
    definition.offset = reader_.offset();
    if (reader_.Take("_")) {
      definition.absent = true;
      return definition;
    }
    RETURN_IF_ERROR(reader_.Expect("%"));
    if (IsDigit(reader_.Peek())) {
      ASSIGN_OR_RETURN(definition.id, Id(limits::kProgramValuesMax));
      if (reader_.Peek() == '"') {
        ASSIGN_OR_RETURN(definition.value.name, reader_.Quoted());
      }
    } else {
      definition.by_name = true;
      ASSIGN_OR_RETURN(definition.value.name, reader_.Name());
      if (reader_.Take("#")) {
        ASSIGN_OR_RETURN(definition.id, Id(limits::kProgramValuesMax));
      }
    }
    RETURN_IF_ERROR(reader_.Expect(":"));
    ASSIGN_OR_RETURN(definition.value.desc, ParseDesc());
    return definition;
  }

  Result<ValueId> Define(Definition definition) {
    if (definition.absent) return kNoValue;
    if (values_.size() >= limits::kProgramValuesMax) return reader_.WrongAt(definition.offset, "too many values");
    const ValueId id = static_cast<ValueId>(definition.id.value_or(static_cast<int64_t>(values_.size())));
    if (definition.by_name && !names_.emplace(definition.value.name, id).second) {
      return reader_.WrongAt(definition.offset, "%" + definition.value.name + " is defined twice");
    }
    values_.emplace_back(id, std::move(definition.value));
    return id;
  }

  Result<TensorDesc> ParseDesc() {
    TensorDesc desc;
    reader_.Peek();
    const size_t start = reader_.offset();
    ASSIGN_OR_RETURN(const std::string name, reader_.Name());
    const auto dtype = DTypeFromName(name);
    if (!dtype) return reader_.WrongAt(start, "\"" + name + "\" is no dtype");
    desc.dtype = *dtype;
    RETURN_IF_ERROR(reader_.Expect("["));
    if (reader_.Take("*")) {
      RETURN_IF_ERROR(reader_.Expect("]"));
    } else {
      ASSIGN_OR_RETURN(desc.dims, ParseDims());
    }
    for (;;) {
      if (reader_.Take("strided")) {
        desc.layout = LayoutClass::kStrided;
      } else if (reader_.Take("stride0")) {
        desc.layout = LayoutClass::kStrideZero;
      } else if (reader_.Take("blocked")) {
        desc.layout = LayoutClass::kBlocked;
      } else if (reader_.Take("view")) {
        desc.is_view = true;
      } else if (reader_.Take("unaligned")) {
        desc.alignment = AlignmentClass::kElement;
      } else if (reader_.Take("cuda")) {
        desc.device = Device::kCuda;
      } else {
        return desc;
      }
    }
  }

  // Behind "[": expressions up to "]".
  Result<std::vector<Dim>> ParseDims() {
    std::vector<Dim> dims;
    while (!reader_.Take("]")) {
      if (!dims.empty()) RETURN_IF_ERROR(reader_.Expect(","));
      reader_.Peek();
      const size_t start = reader_.offset();
      ASSIGN_OR_RETURN(const std::string_view text, reader_.Until(",]"));
      auto dim = program_.symbols.Parse(text);
      if (!dim) return reader_.WrongAt(start, dim.error().message);
      dims.push_back(*dim);
    }
    return dims;
  }

  // "(" uses ")".
  Result<std::vector<ValueId>> ParseUses() {
    std::vector<ValueId> uses;
    RETURN_IF_ERROR(reader_.Expect("("));
    while (!reader_.Take(")")) {
      if (!uses.empty()) RETURN_IF_ERROR(reader_.Expect(","));
      if (reader_.Take("_")) {
        uses.push_back(kNoValue);
        continue;
      }
      RETURN_IF_ERROR(reader_.Expect("%"));
      if (IsDigit(reader_.Peek())) {
        ASSIGN_OR_RETURN(const int64_t id, Id(limits::kProgramValuesMax));
        uses.push_back(static_cast<ValueId>(id));
        continue;
      }
      const size_t start = reader_.offset();
      ASSIGN_OR_RETURN(const std::string name, reader_.Name());
      const auto found = names_.find(name);
      if (found == names_.end()) return reader_.WrongAt(start, "%" + name + " is not defined before this use");
      uses.push_back(found->second);
    }
    return uses;
  }

  Result<Node> ParseNode(int depth) {
    std::vector<Definition> outputs;
    if (reader_.Take("(")) {
      RETURN_IF_ERROR(reader_.Expect(")"));
      RETURN_IF_ERROR(reader_.Expect("="));
    } else {
      do {
        if (!outputs.empty()) RETURN_IF_ERROR(reader_.Expect(","));
        ASSIGN_OR_RETURN(Definition output, ParseDefinition());
        outputs.push_back(std::move(output));
      } while (!reader_.Take("="));
    }
    Node node;
    reader_.Peek();
    const size_t start = reader_.offset();
    ASSIGN_OR_RETURN(const std::string op, reader_.Name());
    const auto found = TensorOpFromName(op);
    if (!found) return reader_.WrongAt(start, "\"" + op + "\" is no tensor op");
    node.op = *found;
    ASSIGN_OR_RETURN(node.inputs, ParseUses());
    if (reader_.Take("{")) RETURN_IF_ERROR(ParseAttributes(node));
    if (reader_.Peek() == '"') {
      ASSIGN_OR_RETURN(node.name, reader_.Quoted());
    }
    while (reader_.Take("then") || reader_.Take("else") || reader_.Take("body")) {
      ASSIGN_OR_RETURN(const RegionId region, ParseRegion(depth + 1));
      node.regions.push_back(region);
    }
    for (Definition& output : outputs) {
      ASSIGN_OR_RETURN(const ValueId id, Define(std::move(output)));
      node.outputs.push_back(id);
    }
    return node;
  }

  // Behind "{".
  Status ParseAttributes(Node& node) {
    bool first = true;
    while (!reader_.Take("}")) {
      if (!first) RETURN_IF_ERROR(reader_.Expect(","));
      first = false;
      reader_.Peek();
      const size_t start = reader_.offset();
      ASSIGN_OR_RETURN(const std::string name, reader_.NameOrQuoted());
      if (node.attributes.Has(name)) return reader_.WrongAt(start, "attribute \"" + name + "\" is given twice");
      RETURN_IF_ERROR(reader_.Expect("="));
      const OpAttributeInfo* row = FindOpAttribute(node.op, name);
      ASSIGN_OR_RETURN(AttributeValue value, ParseAttributeValue(row ? std::optional(row->type) : std::nullopt));
      node.attributes.Set(name, std::move(value));
    }
    return {};
  }

  Result<AttributeValue> ParseAttributeValue(std::optional<AttributeType> wanted) {
    if (reader_.Peek() == '"') {
      ASSIGN_OR_RETURN(std::string text, reader_.Quoted());
      return AttributeValue(std::move(text));
    }
    if (reader_.Take("@")) return ParseConstantUse();
    if (reader_.Take("dims")) {
      RETURN_IF_ERROR(reader_.Expect("["));
      ASSIGN_OR_RETURN(std::vector<Dim> dims, ParseDims());
      return AttributeValue(std::move(dims));
    }
    const bool ints = reader_.Take("ints"), floats = !ints && reader_.Take("floats");
    const bool texts = !ints && !floats && reader_.Take("texts");
    if (ints || floats || texts || reader_.Peek() == '[') {
      RETURN_IF_ERROR(reader_.Expect("["));
      if (reader_.Peek() == '"' || texts) return ParseTexts();
      return ParseNumbers(floats || (!ints && wanted == AttributeType::kFloats));
    }
    ASSIGN_OR_RETURN(const auto number, ParseNumber());
    if (const auto* integer = std::get_if<int64_t>(&number)) {
      if (wanted == AttributeType::kFloat) return AttributeValue(static_cast<double>(*integer));
      return AttributeValue(*integer);
    }
    return AttributeValue(std::get<double>(number));
  }

  Result<AttributeValue> ParseConstantUse() {
    if (IsDigit(reader_.Peek())) {
      ASSIGN_OR_RETURN(const int64_t id, Id(program_.constants.size()));
      return AttributeValue(static_cast<ConstantId>(id));
    }
    const size_t start = reader_.offset();
    ASSIGN_OR_RETURN(const std::string name, reader_.Name());
    const auto found = constants_.find(name);
    if (found == constants_.end()) return reader_.WrongAt(start, "constant @" + name + " is not defined");
    return AttributeValue(found->second);
  }

  Result<std::variant<int64_t, double>> ParseNumber() {
    using Number = std::variant<int64_t, double>;
    reader_.Peek();
    const size_t start = reader_.offset();
    ASSIGN_OR_RETURN(const std::string_view text, reader_.Scalar());
    int64_t integer = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), integer);
    if (error == std::errc() && end == text.data() + text.size()) return Number(integer);
    const auto real = ParseFloat(text);
    if (!real) return reader_.WrongAt(start, real.error().message);
    return Number(*real);
  }

  Result<AttributeValue> ParseTexts() {
    std::vector<std::string> list;
    while (!reader_.Take("]")) {
      if (!list.empty()) RETURN_IF_ERROR(reader_.Expect(","));
      ASSIGN_OR_RETURN(std::string text, reader_.Quoted());
      list.push_back(std::move(text));
    }
    return AttributeValue(std::move(list));
  }

  // A list is one of floats if any element is, or if the caller knows.
  Result<AttributeValue> ParseNumbers(bool is_float) {
    std::vector<int64_t> ints;
    std::vector<double> floats;
    while (!reader_.Take("]")) {
      if (!floats.empty()) RETURN_IF_ERROR(reader_.Expect(","));
      ASSIGN_OR_RETURN(const auto number, ParseNumber());
      const auto* integer = std::get_if<int64_t>(&number);
      is_float |= integer == nullptr;
      floats.push_back(integer ? static_cast<double>(*integer) : std::get<double>(number));
      if (integer) ints.push_back(*integer);
    }
    if (is_float) return AttributeValue(std::move(floats));
    return AttributeValue(std::move(ints));
  }

  TextReader& reader_;
  Program& program_;
  const std::unordered_map<std::string, ConstantId>& constants_;
  Function function_;
  std::vector<std::pair<ValueId, Value>> values_;
  std::vector<std::pair<RegionId, Region>> regions_;
  std::unordered_map<std::string, ValueId> names_;
  RegionId next_region_ = 0;
  size_t nodes_ = 0;
};

}  // namespace

Result<Function> ParseFunction(TextReader& reader, Program& program,
                               const std::unordered_map<std::string, ConstantId>& constants) {
  return FunctionParser(reader, program, constants).Run();
}

}  // namespace kiln

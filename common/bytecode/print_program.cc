#include <unordered_map>

#include "common/bytecode/program_text.h"
#include "common/bytecode/tensor_text.h"

namespace kiln {
namespace {

std::string Bound(int64_t value) {
  return value == Interval::kNoBound ? "inf" : std::to_string(value);
}

std::string Indent(int depth) {
  return std::string(static_cast<size_t>(2 * depth), ' ');
}

template <class List, class F>
std::string Joined(const List& list, F&& text_of) {
  std::string text;
  for (const auto& item : list) {
    if (!text.empty()) text += ", ";
    text += text_of(item);
  }
  return text;
}

// A list in brackets; an empty one says its type.
template <class T, class F>
std::string List(const std::vector<T>& list, const char* type, F&& text_of) {
  return list.empty() ? std::string(type) + "[]" : "[" + Joined(list, text_of) + "]";
}

// How often each name occurs, to tell which can stand for its owner.
template <class List>
std::unordered_map<std::string_view, int> CountNames(const List& named) {
  std::unordered_map<std::string_view, int> counts;
  for (const auto& item : named) ++counts[item.name];
  return counts;
}

class ProgramPrinter {
 public:
  ProgramPrinter(const Program& program, const PrintOptions& options)
      : program_(program), options_(options), constant_names_(CountNames(program.constants)) {}

  std::string Run() {
    out_ = "program " + QuotedText(program_.name) + " {\n";
    const SymbolTable& symbols = program_.symbols;
    for (size_t i = 0; i < symbols.symbol_count(); ++i) PrintSymbol(static_cast<SymbolId>(i));
    for (const Constraint& constraint : symbols.constraints()) {
      out_ += "  constraint " + symbols.ToString(constraint) + "\n";
    }
    for (size_t i = 0; i < program_.constants.size(); ++i) PrintConstant(static_cast<ConstantId>(i));
    for (const Function& function : program_.functions) PrintFunction(function);
    return std::move(out_) + "}\n";
  }

 private:
  void PrintSymbol(SymbolId id) {
    const Symbol& symbol = program_.symbols.symbol(id);
    out_ += "  symbol " + program_.symbols.SymbolText(id);
    if (symbol.range != Interval{})
      out_ += " in [" + std::to_string(symbol.range.min) + ", " + Bound(symbol.range.max) + "]";
    if (symbol.divisor != 1) out_ += " divisor " + std::to_string(symbol.divisor);
    out_ += "\n";
  }

  // Others go by their id; a name may be a number, and even that one.
  bool IsConstantByName(ConstantId id) const {
    const std::string& name = program_.constants[static_cast<size_t>(id)].name;
    return IsPlainName(name) && constant_names_.at(name) == 1;
  }

  std::string ConstantText(ConstantId id) const {
    return "@" + (IsConstantByName(id) ? program_.constants[static_cast<size_t>(id)].name : std::to_string(id));
  }

  void PrintConstant(ConstantId id) {
    const Constant& constant = program_.constants[static_cast<size_t>(id)];
    const bool is_default = constant.is_immediate == Program::IsImmediate(constant.tensor);
    out_ += is_default ? "  constant " : constant.is_immediate ? "  immediate " : "  weight ";
    if (IsConstantByName(id)) {
      out_ += constant.name;
    } else {
      out_ += ConstantText(id) + (constant.name.empty() ? "" : " " + QuotedText(constant.name));
    }
    out_ += " : " + std::string(DTypeName(constant.tensor.dtype())) + constant.tensor.dims().ToString() + " = ";
    const auto offset = options_.placement ? options_.placement(id) : std::nullopt;
    out_ += offset ? "ref " + std::to_string(*offset) : TensorDataText(constant.tensor, options_.list_elements_max);
    out_ += "\n";
  }

  void PrintFunction(const Function& function) {
    function_ = &function;
    value_names_ = CountNames(function.values);
    next_value_ = 0;
    next_region_ = 0;
    out_ += "  func " + NameOrQuotedText(function.name);
    PrintRegion(0, 1);
    out_ += "\n";
  }

  // "(inputs) -> (outputs) { nodes }"; the cursor is behind the label.
  void PrintRegion(RegionId id, int depth) {
    if (id != next_region_++) out_ += "#" + std::to_string(id);
    const Region& region = function_->regions[static_cast<size_t>(id)];
    out_ += "(" + Joined(region.inputs, [&](ValueId input) { return Definition(input, ": "); }) + ") -> (";
    out_ += Joined(region.outputs, [&](ValueId output) { return Use(output); }) + ") {\n";
    for (const Node& node : region.nodes) PrintNode(node, depth + 1);
    out_ += Indent(depth) + "}";
  }

  bool IsValueByName(ValueId id) const {
    const std::string& name = function_->values[static_cast<size_t>(id)].name;
    return IsPlainName(name) && value_names_.at(name) == 1;
  }

  std::string Use(ValueId id) const {
    if (id == kNoValue) return "_";
    return "%" + (IsValueByName(id) ? function_->values[static_cast<size_t>(id)].name : std::to_string(id));
  }

  std::string Definition(ValueId id, std::string_view colon) {
    if (id == kNoValue) return "_";
    const Value& value = function_->values[static_cast<size_t>(id)];
    std::string text = Use(id);
    if (!IsValueByName(id)) {
      if (!value.name.empty()) text += " " + QuotedText(value.name);
    } else if (id != next_value_) {
      text += "#" + std::to_string(id);
    }
    ++next_value_;
    return text + std::string(colon) + DescText(value.desc);
  }

  std::string DescText(const TensorDesc& desc) const {
    std::string text = ToString(desc, program_.symbols);
    switch (desc.layout) {
      case LayoutClass::kContiguous:
        break;
      case LayoutClass::kStrided:
        text += " strided";
        break;
      case LayoutClass::kStrideZero:
        text += " stride0";
        break;
      case LayoutClass::kBlocked:
        text += " blocked";
        break;
    }
    if (desc.is_view) text += " view";
    if (desc.alignment == AlignmentClass::kElement) text += " unaligned";
    if (desc.device == Device::kCuda) text += " cuda";
    return text;
  }

  void PrintNode(const Node& node, int depth) {
    // Outputs are defined behind the node's regions, so they are numbered after them: print the regions first.
    std::string before = std::move(out_);
    out_.clear();
    constexpr std::string_view kBranches[] = {"then", "else"};
    for (size_t i = 0; i < node.regions.size(); ++i) {
      out_ += " " + std::string(node.op == TensorOp::kIf ? kBranches[i] : "body");
      PrintRegion(node.regions[i], depth);
    }
    const std::string regions = std::move(out_);
    out_ = std::move(before);
    out_ += Indent(depth);
    out_ += node.outputs.empty() ? "()" : Joined(node.outputs, [&](ValueId id) { return Definition(id, " : "); });
    out_ += " = " + std::string(OpInfo(node.op).name) + "(";
    out_ += Joined(node.inputs, [&](ValueId input) { return Use(input); }) + ")";
    if (!node.attributes.all().empty()) {
      out_ += " {" +
              Joined(node.attributes.all(),
                     [&](const Attribute& attribute) {
                       return NameOrQuotedText(attribute.name) + " = " + AttributeText(attribute.value);
                     }) +
              "}";
    }
    if (!node.name.empty()) out_ += " " + QuotedText(node.name);
    out_ += regions + "\n";
  }

  std::string AttributeText(const AttributeValue& value) const {
    struct Visitor {
      const ProgramPrinter& printer;
      std::string operator()(int64_t number) const { return std::to_string(number); }
      std::string operator()(double number) const { return FloatText(number); }
      std::string operator()(const std::string& text) const { return QuotedText(text); }
      std::string operator()(const std::vector<int64_t>& list) const {
        return List(list, "ints", [](int64_t number) { return std::to_string(number); });
      }
      std::string operator()(const std::vector<double>& list) const { return List(list, "floats", FloatText); }
      std::string operator()(const std::vector<std::string>& list) const { return List(list, "texts", QuotedText); }
      std::string operator()(ConstantId id) const { return printer.ConstantText(id); }
      std::string operator()(const std::vector<Dim>& dims) const {
        return "dims[" + Joined(dims, [&](Dim dim) { return printer.program_.symbols.ToString(dim); }) + "]";
      }
    };
    return std::visit(Visitor{*this}, value);
  }

  const Program& program_;
  const PrintOptions& options_;
  std::unordered_map<std::string_view, int> constant_names_;
  std::unordered_map<std::string_view, int> value_names_;
  const Function* function_ = nullptr;
  ValueId next_value_ = 0;
  RegionId next_region_ = 0;
  std::string out_;
};

}  // namespace

std::string PrintProgram(const Program& program, const PrintOptions& options) {
  return ProgramPrinter(program, options).Run();
}

}  // namespace kiln

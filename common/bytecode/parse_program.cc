#include <unordered_map>

#include "common/bytecode/parse_function.h"
#include "common/bytecode/program_text.h"
#include "common/bytecode/tensor_text.h"

namespace kiln {
namespace {

class ProgramParser {
 public:
  ProgramParser(TextReader& reader, WeightSource* weights) : reader_(reader), weights_(weights) {}

  Result<Program> Run() {
    RETURN_IF_ERROR(reader_.Expect("program"));
    ASSIGN_OR_RETURN(program_.name, reader_.Quoted());
    RETURN_IF_ERROR(reader_.Expect("{"));
    while (!reader_.Take("}")) RETURN_IF_ERROR(ParseItem());
    RETURN_IF_ERROR(VerifyProgram(program_));
    return std::move(program_);
  }

 private:
  Status ParseItem() {
    if (reader_.Take("symbol")) return ParseSymbol();
    if (reader_.Take("constraint")) return ParseConstraint();
    if (reader_.Take("constant")) return ParseConstant(std::nullopt);
    if (reader_.Take("immediate")) return ParseConstant(true);
    if (reader_.Take("weight")) return ParseConstant(false);
    if (reader_.Take("func")) {
      ASSIGN_OR_RETURN(Function function, ParseFunction(reader_, program_, constants_));
      program_.functions.push_back(std::move(function));
      return {};
    }
    return reader_.Wrong("symbol, constraint, constant, immediate, weight, func or \"}\" is expected");
  }

  Status ParseSymbol() {
    reader_.Peek();
    const size_t start = reader_.offset();
    ASSIGN_OR_RETURN(const std::string name, reader_.NameOrQuoted());
    Interval range;
    int64_t divisor = 1;
    if (reader_.Take("in")) {
      RETURN_IF_ERROR(reader_.Expect("["));
      ASSIGN_OR_RETURN(range.min, reader_.Int());
      RETURN_IF_ERROR(reader_.Expect(","));
      if (!reader_.Take("inf")) {
        ASSIGN_OR_RETURN(range.max, reader_.Int());
      }
      RETURN_IF_ERROR(reader_.Expect("]"));
    }
    if (reader_.Take("divisor")) {
      ASSIGN_OR_RETURN(divisor, reader_.Int());
    }
    if (name.empty() || program_.symbols.FindSymbol(name)) {
      return reader_.WrongAt(start, "a symbol needs a name that no other has");
    }
    if (auto symbol = program_.symbols.AddSymbol(name, range, divisor); !symbol) {
      return reader_.WrongAt(start, symbol.error().message);
    }
    return {};
  }

  Status ParseConstraint() {
    reader_.Peek();
    const size_t start = reader_.offset();
    ASSIGN_OR_RETURN(const std::string_view line, reader_.Until("\n}"));
    struct Kind {
      ConstraintKind kind;
      std::string_view text;
    };
    constexpr Kind kKinds[] = {
#define KILN_CONSTRAINT(value, name, text, doc) {ConstraintKind::k##name, text},
#include "common/shape/constraints.def"
#undef KILN_CONSTRAINT
    };
    for (const Kind& kind : kKinds) {
      const std::string middle = " " + std::string(kind.text) + " ";
      // Skip what stands in quotes: a symbol's name may hold anything.
      bool quoted = false;
      for (size_t at = 0; at + middle.size() <= line.size(); ++at) {
        if (line[at] == '\\') ++at;
        if (line[at] == '"') quoted = !quoted;
        if (quoted || line.substr(at, middle.size()) != middle) continue;
        auto left = program_.symbols.Parse(line.substr(0, at));
        if (!left) return reader_.WrongAt(start, left.error().message);
        auto right = program_.symbols.Parse(line.substr(at + middle.size()));
        if (!right) return reader_.WrongAt(start + at, right.error().message);
        program_.symbols.AddConstraint({kind.kind, *left, *right});
        return {};
      }
    }
    std::string kinds;
    for (const Kind& kind : kKinds) kinds += (kinds.empty() ? "" : ", ") + std::string(kind.text);
    return reader_.WrongAt(start, "a constraint needs one of " + kinds + ", with a space on both sides");
  }

  Status ParseConstant(std::optional<bool> is_immediate) {
    const ConstantId id = static_cast<ConstantId>(program_.constants.size());
    Constant constant;
    reader_.Peek();
    const size_t start = reader_.offset();
    if (reader_.Take("@")) {
      ASSIGN_OR_RETURN(const int64_t written, reader_.Int());
      if (written != id) return reader_.WrongAt(start, "this is constant @" + std::to_string(id));
      if (reader_.Peek() == '"') {
        ASSIGN_OR_RETURN(constant.name, reader_.Quoted());
      }
    } else {
      ASSIGN_OR_RETURN(constant.name, reader_.Name());
      if (!constants_.emplace(constant.name, id).second) {
        return reader_.WrongAt(start, "constant @" + constant.name + " is defined twice");
      }
    }
    RETURN_IF_ERROR(reader_.Expect(":"));
    DType dtype{};
    Dims dims;
    RETURN_IF_ERROR(ParseStaticShape(reader_, dtype, dims));
    RETURN_IF_ERROR(reader_.Expect("="));
    if (reader_.Take("ref")) {
      ASSIGN_OR_RETURN(const int64_t offset, reader_.Int());
      if (offset < 0) return reader_.Wrong("an offset is not negative");
      auto tensor = FetchWeight(weights_, dtype, dims, static_cast<uint64_t>(offset));
      if (!tensor) return reader_.WrongAt(start, tensor.error().message);
      constant.tensor = *std::move(tensor);
    } else {
      ASSIGN_OR_RETURN(constant.tensor, ParseTensorData(reader_, dtype, dims));
    }
    constant.is_immediate = is_immediate.value_or(Program::IsImmediate(constant.tensor));
    program_.constants.push_back(std::move(constant));
    return {};
  }

  TextReader& reader_;
  WeightSource* weights_;
  Program program_;
  std::unordered_map<std::string, ConstantId> constants_;
};

}  // namespace

Result<Program> ParseProgram(TextReader& reader, WeightSource* weights) {
  return ProgramParser(reader, weights).Run();
}

Result<Program> ParseProgram(std::string_view text, WeightSource* weights) {
  TextReader reader(text);
  ASSIGN_OR_RETURN(Program program, ParseProgram(reader, weights));
  if (!reader.AtEnd()) return reader.Wrong("text after the program");
  return program;
}

}  // namespace kiln

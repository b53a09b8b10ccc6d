// Expressions as text. The grammar:
//   sum     = product { ("+" | "-") product }
//   product = factor { "*" factor }
//   factor  = integer | symbol | function "(" sum "," sum ")" | "(" sum ")" | "-" factor
//   symbol  = plain name, or any bytes in double quotes with \" \\ and \xHH
#include "common/base/limits.h"
#include "common/base/text_reader.h"
#include "common/shape/symbol_table_impl.h"

namespace kiln {
namespace {

struct Function {
  AtomKind kind;
  std::string_view name;
};
constexpr Function kFunctions[] = {{AtomKind::kFloorDiv, "floordiv"}, {AtomKind::kMod, "mod"},
                                   {AtomKind::kMin, "min"},           {AtomKind::kMax, "max"},
                                   {AtomKind::kProduct, "product"},   {AtomKind::kTooLarge, "too_large"}};

std::string_view FunctionName(AtomKind kind) {
  for (const Function& function : kFunctions) {
    if (function.kind == kind) return function.name;
  }
  return "";
}

bool IsFunctionName(std::string_view name) {
  for (const Function& function : kFunctions) {
    if (function.name == name) return true;
  }
  return false;
}

class DimParser {
 public:
  DimParser(SymbolTable& table, std::string_view text) : table_(table), reader_(text) {}

  Result<Dim> Run() {
    ASSIGN_OR_RETURN(const Dim dim, Sum());
    if (!reader_.AtEnd()) return reader_.Wrong("text after the expression");
    return dim;
  }

 private:
  Result<Dim> Sum() {
    ASSIGN_OR_RETURN(Dim sum, Product());
    for (;;) {
      if (reader_.Take("+")) {
        ASSIGN_OR_RETURN(const Dim next, Product());
        sum = table_.Add(sum, next);
      } else if (reader_.Take("-")) {
        ASSIGN_OR_RETURN(const Dim next, Product());
        sum = table_.Sub(sum, next);
      } else {
        return sum;
      }
    }
  }

  Result<Dim> Product() {
    ASSIGN_OR_RETURN(Dim product, Factor());
    while (reader_.Take("*")) {
      ASSIGN_OR_RETURN(const Dim next, Factor());
      product = table_.Mul(product, next);
    }
    return product;
  }

  Result<Dim> Factor() {
    if (depth_ == limits::kDimTextDepthMax)
      return reader_.Wrong("nested deeper than " + std::to_string(limits::kDimTextDepthMax));
    ++depth_;
    auto factor = FactorInner();
    --depth_;
    return factor;
  }

  Result<Dim> FactorInner() {
    const char c = reader_.Peek();
    if (c >= '0' && c <= '9') return Constant();
    if (c == '-') {
      // A minus and digits are one number, so that the smallest one can be written.
      const size_t start = reader_.offset();
      if (auto constant = Constant()) return constant;
      reader_.Rewind(start);
      RETURN_IF_ERROR(reader_.Expect("-"));
      ASSIGN_OR_RETURN(const Dim factor, Factor());
      return table_.Sub(Dim::Const(0), factor);
    }
    if (reader_.Take("(")) {
      ASSIGN_OR_RETURN(const Dim sum, Sum());
      RETURN_IF_ERROR(reader_.Expect(")"));
      return sum;
    }
    const size_t start = reader_.offset();
    if (c != '"') {
      auto name = reader_.Name();
      if (!name) return reader_.Wrong("a number, symbol or function is expected");
      for (const Function& function : kFunctions) {
        if (function.name == *name) return Call(function.kind);
      }
      reader_.Rewind(start);
    }
    ASSIGN_OR_RETURN(const std::string name, reader_.NameOrQuoted());
    const auto symbol = table_.FindSymbol(name);
    if (!symbol) return reader_.WrongAt(start, "symbol \"" + name + "\" is not declared");
    return *symbol;
  }

  Result<Dim> Constant() {
    ASSIGN_OR_RETURN(const int64_t value, reader_.Int());
    return Dim::Const(value);
  }

  Result<Dim> Call(AtomKind kind) {
    RETURN_IF_ERROR(reader_.Expect("("));
    if (kind == AtomKind::kTooLarge) {
      RETURN_IF_ERROR(reader_.Expect(")"));
      return table_.TooLarge();
    }
    ASSIGN_OR_RETURN(const Dim left, Sum());
    RETURN_IF_ERROR(reader_.Expect(","));
    ASSIGN_OR_RETURN(const Dim right, Sum());
    RETURN_IF_ERROR(reader_.Expect(")"));
    switch (kind) {
      case AtomKind::kFloorDiv:
      case AtomKind::kMod:
        if (right.is_const() && right.value() <= 0) return reader_.Wrong("a divisor must be positive");
        return kind == AtomKind::kMod ? table_.Mod(left, right) : table_.FloorDiv(left, right);
      case AtomKind::kMin:
        return table_.Min(left, right);
      case AtomKind::kMax:
        return table_.Max(left, right);
      case AtomKind::kProduct:
      case AtomKind::kSymbol:
      case AtomKind::kTooLarge:
        break;
    }
    return table_.Mul(left, right);
  }

  SymbolTable& table_;
  TextReader reader_;
  int depth_ = 0;
};

}  // namespace

std::string SymbolTable::SymbolText(SymbolId id) const {
  const std::string& name = symbol(id).name;
  return IsFunctionName(name) ? QuotedText(name) : NameOrQuotedText(name);
}

std::string SymbolTable::ToString(Dim dim) const {
  if (dim.is_const()) return std::to_string(dim.value());
  if (dim.kind() == Dim::Kind::kSymbol) return SymbolText(dim.symbol());
  std::string text;
  for (const Term& term : impl_->exprs[static_cast<size_t>(dim.payload_)].poly) {
    int64_t coefficient = term.coefficient;
    if (!text.empty()) {
      const bool subtract = coefficient < 0 && coefficient != INT64_MIN;
      text += subtract ? " - " : " + ";
      if (subtract) coefficient = -coefficient;
    } else if (coefficient == -1 && !term.atoms.empty()) {
      text += "-";
      coefficient = 1;
    }
    bool first = term.atoms.empty() || coefficient != 1;
    if (first) text += std::to_string(coefficient);
    for (AtomId id : term.atoms) {
      if (first) text += "*";
      first = true;
      const Atom& atom = impl_->atoms[static_cast<size_t>(id)];
      if (atom.kind == AtomKind::kSymbol) {
        text += SymbolText(atom.symbol);
      } else if (atom.kind == AtomKind::kTooLarge) {
        text += "too_large()";
      } else {
        text += std::string(FunctionName(atom.kind)) + "(" + ToString(atom.left) + ", " + ToString(atom.right) + ")";
      }
    }
  }
  return text;
}

Result<Dim> SymbolTable::Parse(std::string_view text) {
  auto dim = DimParser(*this, text).Run();
  if (!dim) return FailIn("expression \"" + std::string(text.substr(0, 200)) + "\"", dim.error());
  return dim;
}

Dim SymbolTable::TooLarge() {
  return impl_->TooLarge();
}

std::string SymbolTable::ToString(const Constraint& constraint) const {
  std::string_view name;
  switch (constraint.kind) {
#define KILN_CONSTRAINT(value, kind_name, text, doc) \
  case ConstraintKind::k##kind_name:                 \
    name = text;                                     \
    break;
#include "common/shape/constraints.def"
#undef KILN_CONSTRAINT
  }
  return ToString(constraint.left) + " " + std::string(name) + " " + ToString(constraint.right);
}

}  // namespace kiln

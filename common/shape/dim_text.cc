// Expressions as text. The grammar:
//   sum     = product { ("+" | "-") product }
//   product = factor { "*" factor }
//   factor  = integer | symbol | function "(" sum "," sum ")" | "(" sum ")" | "-" factor
//   symbol  = plain name, or any bytes in double quotes with \" \\ and \xHH
#include <cctype>
#include <charconv>

#include "common/shape/symbol_table_impl.h"

namespace kiln {
namespace {

constexpr int kTextDepthMax = 256;

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

bool IsNameStart(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool IsNamePart(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }

std::string QuotedName(std::string_view name) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "\"";
  for (unsigned char c : name) {
    if (c == '"' || c == '\\') {
      text += '\\';
      text += static_cast<char>(c);
    } else if (c < 0x20 || c >= 0x7f) {
      text += "\\x";
      text += kDigits[c >> 4];
      text += kDigits[c & 15];
    } else {
      text += static_cast<char>(c);
    }
  }
  return text + "\"";
}

class DimParser {
 public:
  DimParser(SymbolTable& table, std::string_view text) : table_(table), text_(text) {}

  Result<Dim> Run() {
    ASSIGN_OR_RETURN(const Dim dim, Sum());
    Skip();
    if (at_ != text_.size()) return Wrong("text after the expression");
    return dim;
  }

 private:
  std::unexpected<Error> Wrong(std::string_view what) const {
    return Fail(ErrorCode::kMalformed,
                "expression \"" + std::string(text_) + "\", column " + std::to_string(at_ + 1) + ": " + std::string(what));
  }
  void Skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool Take(char c) {
    Skip();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  char Peek() {
    Skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  Result<Dim> Sum() {
    ASSIGN_OR_RETURN(Dim sum, Product());
    for (;;) {
      if (Take('+')) {
        ASSIGN_OR_RETURN(const Dim next, Product());
        sum = table_.Add(sum, next);
      } else if (Take('-')) {
        ASSIGN_OR_RETURN(const Dim next, Product());
        sum = table_.Sub(sum, next);
      } else {
        return sum;
      }
    }
  }

  Result<Dim> Product() {
    ASSIGN_OR_RETURN(Dim product, Factor());
    while (Take('*')) {
      ASSIGN_OR_RETURN(const Dim next, Factor());
      product = table_.Mul(product, next);
    }
    return product;
  }

  Result<Dim> Factor() {
    if (depth_ == kTextDepthMax) return Wrong("nested deeper than " + std::to_string(kTextDepthMax));
    ++depth_;
    auto factor = FactorInner();
    --depth_;
    return factor;
  }

  Result<Dim> FactorInner() {
    const char c = Peek();
    const bool digit_follows = at_ + 1 < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_ + 1]));
    if (std::isdigit(static_cast<unsigned char>(c)) || (c == '-' && digit_follows)) return Integer();
    if (Take('-')) {
      ASSIGN_OR_RETURN(const Dim factor, Factor());
      return table_.Sub(Dim::Const(0), factor);
    }
    if (Take('(')) {
      ASSIGN_OR_RETURN(const Dim sum, Sum());
      if (!Take(')')) return Wrong("\")\" is missing");
      return sum;
    }
    if (c == '"') {
      ASSIGN_OR_RETURN(const std::string name, QuotedSymbol());
      return Symbol(name);
    }
    if (!IsNameStart(c)) return Wrong("a number, symbol or function is expected");
    const size_t start = at_;
    while (at_ < text_.size() && IsNamePart(text_[at_])) ++at_;
    const std::string_view name = text_.substr(start, at_ - start);
    for (const Function& function : kFunctions) {
      if (function.name == name) return Call(function.kind);
    }
    return Symbol(name);
  }

  Result<Dim> Integer() {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) return Wrong("the number does not fit 64 bits");
    at_ = static_cast<size_t>(end - text_.data());
    return Dim::Const(value);
  }

  Result<Dim> Symbol(std::string_view name) {
    const auto symbol = table_.FindSymbol(name);
    if (!symbol) return Wrong("symbol \"" + std::string(name) + "\" is not declared");
    return *symbol;
  }

  Result<std::string> QuotedSymbol() {
    ++at_;
    std::string name;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] != '\\') {
        name += text_[at_++];
        continue;
      }
      if (++at_ == text_.size()) break;
      const char escaped = text_[at_++];
      if (escaped != 'x') {
        name += escaped;
        continue;
      }
      unsigned byte = 0;
      if (at_ + 2 > text_.size()) return Wrong("\\x needs two hex digits");
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + at_ + 2, byte, 16);
      if (error != std::errc() || end != text_.data() + at_ + 2) return Wrong("\\x needs two hex digits");
      name += static_cast<char>(byte);
      at_ += 2;
    }
    if (at_ == text_.size()) return Wrong("the closing quote is missing");
    ++at_;
    return name;
  }

  Result<Dim> Call(AtomKind kind) {
    if (!Take('(')) return Wrong("\"(\" is expected after a function");
    if (kind == AtomKind::kTooLarge) {
      if (!Take(')')) return Wrong("\")\" is missing");
      const int64_t code[] = {static_cast<int64_t>(AtomKind::kTooLarge) + 2, 0};
      return table_.Decode(code);
    }
    ASSIGN_OR_RETURN(const Dim left, Sum());
    if (!Take(',')) return Wrong("\",\" is expected between the arguments");
    ASSIGN_OR_RETURN(const Dim right, Sum());
    if (!Take(')')) return Wrong("\")\" is missing");
    switch (kind) {
      case AtomKind::kFloorDiv:
      case AtomKind::kMod:
        if (right.is_const() && right.value() <= 0) return Wrong("a divisor must be positive");
        return kind == AtomKind::kMod ? table_.Mod(left, right) : table_.FloorDiv(left, right);
      case AtomKind::kMin:
        return table_.Min(left, right);
      case AtomKind::kMax:
        return table_.Max(left, right);
      case AtomKind::kProduct:
        return table_.Mul(left, right);
      case AtomKind::kSymbol:
      case AtomKind::kTooLarge:
        break;
    }
    return Wrong("unknown function");
  }

  SymbolTable& table_;
  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

bool IsPlainSymbolName(std::string_view name) {
  if (name.empty() || !IsNameStart(name[0])) return false;
  for (char c : name) {
    if (!IsNamePart(c)) return false;
  }
  for (const Function& function : kFunctions) {
    if (function.name == name) return false;
  }
  return true;
}

std::string SymbolTable::SymbolText(SymbolId id) const {
  const std::string& name = symbol(id).name;
  return IsPlainSymbolName(name) ? name : QuotedName(name);
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

Result<Dim> SymbolTable::Parse(std::string_view text) { return DimParser(*this, text).Run(); }

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

// Expressions as postfix code: pairs (operation, operand). Values are serialised: append-only.
#include "common/base/limits.h"
#include "common/shape/symbol_table_impl.h"

namespace kiln {
namespace {

enum class CodeOp : int64_t {
  kConst = 0,   // pushes the operand
  kSymbol = 1,  // pushes symbol number operand
  kAdd = 2,     // replaces the top `operand` values by their sum
  kMul = 3,     // … by their product
  // An atom of kind k is operation k + 2; its operand is 0, its arguments are the top two values.
  kFloorDiv = 4,
  kMod = 5,
  kMin = 6,
  kMax = 7,
  kProduct = 8,
  kTooLarge = 9,  // no arguments
};
static_assert(static_cast<int64_t>(AtomKind::kFloorDiv) + 2 == static_cast<int64_t>(CodeOp::kFloorDiv));
static_assert(static_cast<int64_t>(AtomKind::kTooLarge) + 2 == static_cast<int64_t>(CodeOp::kTooLarge));

// A tree of kDimNodesMax nodes takes at most three pairs per node.
constexpr size_t kCodePairsMax = size_t{3} * limits::kDimNodesMax;

void Emit(std::vector<int64_t>& code, CodeOp op, int64_t operand) {
  code.push_back(static_cast<int64_t>(op));
  code.push_back(operand);
}

std::unexpected<Error> Bad(size_t pair, const std::string& what) {
  return Fail(ErrorCode::kMalformed, "dim code, pair " + std::to_string(pair) + ": " + what);
}

}  // namespace

void SymbolTable::EncodeInto(Dim dim, std::vector<int64_t>& code) const {
  if (dim.is_const()) return Emit(code, CodeOp::kConst, dim.value());
  if (dim.kind() == Dim::Kind::kSymbol) return Emit(code, CodeOp::kSymbol, dim.symbol());
  const Poly& poly = impl_->exprs[static_cast<size_t>(dim.payload_)].poly;
  for (const Term& term : poly) {
    size_t factors = term.atoms.size();
    if (term.coefficient != 1 || factors == 0) {
      Emit(code, CodeOp::kConst, term.coefficient);
      ++factors;
    }
    for (AtomId id : term.atoms) {
      const Atom& atom = impl_->atoms[static_cast<size_t>(id)];
      if (atom.kind == AtomKind::kSymbol) {
        Emit(code, CodeOp::kSymbol, atom.symbol);
        continue;
      }
      if (atom.kind != AtomKind::kTooLarge) {
        EncodeInto(atom.left, code);
        EncodeInto(atom.right, code);
      }
      Emit(code, static_cast<CodeOp>(static_cast<int64_t>(atom.kind) + 2), 0);
    }
    if (factors > 1) Emit(code, CodeOp::kMul, static_cast<int64_t>(factors));
  }
  if (poly.size() > 1) Emit(code, CodeOp::kAdd, static_cast<int64_t>(poly.size()));
}

std::vector<int64_t> SymbolTable::Encode(Dim dim) const {
  std::vector<int64_t> code;
  EncodeInto(dim, code);
  return code;
}

Result<Dim> SymbolTable::Decode(std::span<const int64_t> code) {
  if (code.empty() || code.size() % 2 != 0 || code.size() / 2 > kCodePairsMax) {
    return Fail(ErrorCode::kMalformed, "dim code has " + std::to_string(code.size()) +
                                           " words; a positive even number up to " + std::to_string(2 * kCodePairsMax) +
                                           " is expected");
  }
  std::vector<Dim> stack;
  for (size_t pair = 0; pair < code.size() / 2; ++pair) {
    const int64_t number = code[2 * pair], operand = code[2 * pair + 1];
    if (number < 0 || number > static_cast<int64_t>(CodeOp::kTooLarge)) {
      return Bad(pair, "operation " + std::to_string(number) + " does not exist");
    }
    const CodeOp op = static_cast<CodeOp>(number);
    switch (op) {
      case CodeOp::kConst:
        stack.push_back(Dim::Const(operand));
        break;
      case CodeOp::kSymbol:
        if (operand < 0 || static_cast<size_t>(operand) >= symbol_count()) {
          return Bad(pair, "symbol " + std::to_string(operand) + " of " + std::to_string(symbol_count()));
        }
        stack.push_back(SymbolDim(static_cast<SymbolId>(operand)));
        break;
      case CodeOp::kAdd:
      case CodeOp::kMul: {
        if (operand < 2 || static_cast<uint64_t>(operand) > stack.size()) {
          return Bad(pair, "takes " + std::to_string(operand) + " values of " + std::to_string(stack.size()));
        }
        const size_t first = stack.size() - static_cast<size_t>(operand);
        Dim result = stack[first];
        for (size_t i = first + 1; i < stack.size(); ++i) {
          result = op == CodeOp::kAdd ? Add(result, stack[i]) : Mul(result, stack[i]);
        }
        stack.resize(first);
        stack.push_back(result);
        break;
      }
      case CodeOp::kFloorDiv:
      case CodeOp::kMod:
      case CodeOp::kMin:
      case CodeOp::kMax:
      case CodeOp::kProduct: {
        if (operand != 0 || stack.size() < 2) return Bad(pair, "a function needs two values and operand 0");
        const Dim right = stack.back();
        stack.pop_back();
        const Dim left = stack.back();
        const bool divides = op == CodeOp::kFloorDiv || op == CodeOp::kMod;
        if (divides && right.is_const() && right.value() <= 0) {
          return Bad(pair, "division by " + std::to_string(right.value()));
        }
        stack.back() = op == CodeOp::kFloorDiv ? FloorDiv(left, right)
                       : op == CodeOp::kMod    ? Mod(left, right)
                       : op == CodeOp::kMin    ? Min(left, right)
                       : op == CodeOp::kMax    ? Max(left, right)
                                               : Mul(left, right);
        break;
      }
      case CodeOp::kTooLarge:
        if (operand != 0) return Bad(pair, "operand is not 0");
        stack.push_back(impl_->TooLarge());
        break;
    }
  }
  if (stack.size() != 1) {
    return Fail(ErrorCode::kMalformed, "dim code leaves " + std::to_string(stack.size()) + " values instead of one");
  }
  return stack[0];
}

}  // namespace kiln

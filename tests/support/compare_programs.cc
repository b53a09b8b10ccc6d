#include <bit>
#include <cstring>

#include "tests/support/random_program.h"

namespace kiln::testing {
namespace {

std::string At(const std::string& what, size_t i) {
  return what + " " + std::to_string(i);
}

bool SameBytes(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.dims() != b.dims()) return false;
  const size_t bytes = static_cast<size_t>(a.ref.bytes());
  return bytes == 0 || std::memcmp(a.ref.data, b.ref.data, bytes) == 0;
}

class Comparison {
 public:
  Comparison(const Program& a, const Program& b) : a_(a), b_(b) {}

  std::string Run() const {
    if (a_.name != b_.name) return "program name";
    if (auto text = Symbols(); !text.empty()) return text;
    if (a_.constants.size() != b_.constants.size()) return "number of constants";
    for (size_t i = 0; i < a_.constants.size(); ++i) {
      const Constant &x = a_.constants[i], &y = b_.constants[i];
      if (x.name != y.name || x.is_immediate != y.is_immediate || !SameBytes(x.tensor, y.tensor))
        return At("constant", i);
    }
    if (a_.functions.size() != b_.functions.size()) return "number of functions";
    for (size_t i = 0; i < a_.functions.size(); ++i) {
      const std::string text = Functions(a_.functions[i], b_.functions[i]);
      if (!text.empty()) return At("function", i) + ", " + text;
    }
    return "";
  }

 private:
  bool Same(Dim x, Dim y) const { return a_.symbols.Encode(x) == b_.symbols.Encode(y); }
  bool Same(const std::vector<Dim>& x, const std::vector<Dim>& y) const {
    if (x.size() != y.size()) return false;
    for (size_t i = 0; i < x.size(); ++i) {
      if (!Same(x[i], y[i])) return false;
    }
    return true;
  }

  std::string Symbols() const {
    if (a_.symbols.symbol_count() != b_.symbols.symbol_count()) return "number of symbols";
    for (size_t i = 0; i < a_.symbols.symbol_count(); ++i) {
      const Symbol& x = a_.symbols.symbol(static_cast<SymbolId>(i));
      const Symbol& y = b_.symbols.symbol(static_cast<SymbolId>(i));
      if (x.name != y.name || x.range != y.range || x.divisor != y.divisor) return At("symbol", i);
    }
    const auto &x = a_.symbols.constraints(), &y = b_.symbols.constraints();
    if (x.size() != y.size()) return "number of constraints";
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i].kind != y[i].kind || !Same(x[i].left, y[i].left) || !Same(x[i].right, y[i].right))
        return At("constraint", i);
    }
    return "";
  }

  bool Same(const TensorDesc& x, const TensorDesc& y) const {
    if (x.has_rank() != y.has_rank() || (x.has_rank() && !Same(*x.dims, *y.dims))) return false;
    return x.dtype == y.dtype && x.layout == y.layout && x.is_view == y.is_view && x.alignment == y.alignment &&
           x.device == y.device;
  }

  static bool SameBits(double x, double y) { return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y); }

  bool Same(const AttributeValue& x, const AttributeValue& y) const {
    if (x.index() != y.index()) return false;
    if (const auto* dims = std::get_if<std::vector<Dim>>(&x)) return Same(*dims, std::get<std::vector<Dim>>(y));
    if (const auto* real = std::get_if<double>(&x)) return SameBits(*real, std::get<double>(y));
    if (const auto* reals = std::get_if<std::vector<double>>(&x)) {
      const auto& others = std::get<std::vector<double>>(y);
      return std::equal(reals->begin(), reals->end(), others.begin(), others.end(), SameBits);
    }
    return x == y;
  }

  bool Same(const Attributes& x, const Attributes& y) const {
    if (x.all().size() != y.all().size()) return false;
    for (size_t i = 0; i < x.all().size(); ++i) {
      if (x.all()[i].name != y.all()[i].name || !Same(x.all()[i].value, y.all()[i].value)) return false;
    }
    return true;
  }

  std::string Functions(const Function& x, const Function& y) const {
    if (x.name != y.name) return "name";
    if (x.values.size() != y.values.size()) return "number of values";
    for (size_t i = 0; i < x.values.size(); ++i) {
      if (x.values[i].name != y.values[i].name || !Same(x.values[i].desc, y.values[i].desc)) return At("value", i);
    }
    if (x.regions.size() != y.regions.size()) return "number of regions";
    for (size_t i = 0; i < x.regions.size(); ++i) {
      const Region &r = x.regions[i], &s = y.regions[i];
      if (r.inputs != s.inputs || r.outputs != s.outputs || r.nodes.size() != s.nodes.size()) return At("region", i);
      for (size_t j = 0; j < r.nodes.size(); ++j) {
        const Node &n = r.nodes[j], &m = s.nodes[j];
        if (n.op != m.op || n.name != m.name || n.inputs != m.inputs || n.outputs != m.outputs ||
            n.regions != m.regions || !Same(n.attributes, m.attributes)) {
          return At("region", i) + ", " + At("node", j);
        }
      }
    }
    return "";
  }

  const Program& a_;
  const Program& b_;
};

}  // namespace

std::string DifferenceOf(const Program& a, const Program& b) {
  return Comparison(a, b).Run();
}

}  // namespace kiln::testing

#include <algorithm>
#include <random>

#include "common/base/check.h"
#include "tests/support/random_program.h"

namespace kiln::testing {
namespace {

int64_t NearestLegal(const Symbol& symbol, int64_t value) {
  const int64_t low = (symbol.range.min + symbol.divisor - 1) / symbol.divisor * symbol.divisor;
  const int64_t high = symbol.range.max / symbol.divisor * symbol.divisor;
  const int64_t rounded = (value + symbol.divisor / 2) / symbol.divisor * symbol.divisor;
  return std::clamp(rounded, low, std::max(low, high));
}

}  // namespace

std::vector<int64_t> SymbolValuesNear(const Program& program, int64_t value) {
  std::vector<int64_t> values;
  for (size_t i = 0; i < program.symbols.symbol_count(); ++i) {
    values.push_back(NearestLegal(program.symbols.symbol(static_cast<SymbolId>(i)), value));
  }
  return values;
}

std::vector<int64_t> RandomSymbolValues(const Program& program, uint64_t seed) {
  std::mt19937_64 random(seed);
  constexpr int64_t kSizes[] = {0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17};
  std::vector<int64_t> values;
  for (size_t i = 0; i < program.symbols.symbol_count(); ++i) {
    values.push_back(
        NearestLegal(program.symbols.symbol(static_cast<SymbolId>(i)), kSizes[random() % std::size(kSizes)]));
  }
  return values;
}

Dims ConcreteDims(const TensorDesc& desc, const SymbolTable& symbols, std::span<const int64_t> symbol_values) {
  Dims dims;
  for (Dim dim : *desc.dims) {
    const auto value = symbols.Evaluate(dim, symbol_values);
    KILN_CHECK(value.has_value());
    dims.push_back(*value);
  }
  return dims;
}

Tensor RandomTensor(DType dtype, const Dims& dims, uint64_t seed) {
  std::mt19937_64 random(seed);
  Tensor tensor = Tensor::Allocate(dtype, dims);
  const size_t count = static_cast<size_t>(tensor.ref.elements());
  DispatchDType(dtype, [&]<class T>() {
    for (size_t i = 0; i < count; ++i) {
      const uint64_t bits = random();
      T& element = tensor.ref.as<T>()[i];
      if constexpr (std::is_same_v<T, bool>) {
        element = bits % 2 == 0;
      } else if constexpr (std::is_integral_v<T>) {
        element = static_cast<T>(std::is_unsigned_v<T> ? bits % 9 : bits % 9 - 4);
      } else {
        // In [-2, 2), with zeros of both signs among them.
        const float value = static_cast<float>(bits % 4096) / 1024.0f - 2.0f;
        element = static_cast<T>(bits % 31 == 0 ? (bits % 2 ? 0.0f : -0.0f) : value);
      }
    }
  });
  return tensor;
}

std::vector<Tensor> RandomInputs(const Program& program, std::span<const int64_t> symbol_values, uint64_t seed) {
  std::vector<Tensor> inputs;
  const Function& function = program.entry();
  for (ValueId id : function.regions[0].inputs) {
    const TensorDesc& desc = function.values[static_cast<size_t>(id)].desc;
    inputs.push_back(
        RandomTensor(desc.dtype, ConcreteDims(desc, program.symbols, symbol_values), seed + inputs.size()));
  }
  return inputs;
}

}  // namespace kiln::testing

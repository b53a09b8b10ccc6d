// Random recurrences: stages with and without products, lengths, both directions, tiles of rows.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/compile-service/codegen/spec_cases.h"

namespace kiln::testing {
namespace {

using ir::Access;
using ir::RecurrentSpec;
using ir::RecurrentStage;
using ir::ScalarOp;
using ir::SpecInt;

struct Sizes {
  int64_t time, rows, units;
};

// Weights small enough that errors do not grow with time; columns beyond the units are zero.
int32_t Panels(SpecBuilder& builder, const Sizes& sizes, const RecurrentStage& stage) {
  const int64_t width = int64_t{stage.vectors} * builder.lanes(), blocks = (sizes.units + width - 1) / width;
  std::vector<float> values = RandomValues(builder.random(), blocks * sizes.units * stage.gates * width);
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(sizes.units)));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const int64_t unit = at / (sizes.units * stage.gates * width) * width + at % width;
    values[i] = unit < sizes.units ? values[i] * scale : 0.0f;
  }
  return builder.Buffer(DType::kF32, std::move(values));
}

}  // namespace

// h' = tanh(sum 0 + x), with c += sigmoid(last sum) * h' when there are gates for it; y takes h'.
SpecCase RandomRecurrence(std::mt19937_64& random, Target target) {
  SpecBuilder builder(random, target);
  const Sizes sizes{Pick(random, 0, 9), Pick(random, 1, 7),
                    std::max<int64_t>(1, Pick(random, 0, 3) * builder.lanes() + Pick(random, -1, 1))};
  RecurrentSpec spec;
  spec.time = builder.Size(sizes.time);
  spec.rows = builder.Size(sizes.rows);
  spec.units = static_cast<int32_t>(sizes.units);
  spec.reversed = builder.Coin();
  spec.tile_rows = builder.Coin() ? 1 : static_cast<int32_t>(Pick(random, 1, 6));
  if (spec.tile_rows == 1 && builder.Coin()) {
    std::vector<float> lengths(static_cast<size_t>(sizes.rows));
    for (float& length : lengths) length = static_cast<float>(Pick(random, -1, sizes.time + 2));
    spec.lengths = builder.Buffer(DType::kI32, std::move(lengths));
  }
  const SpecInt zero = SpecInt::Const(0), one = SpecInt::Const(1);
  const auto state = [&] {
    return Access{builder.RandomBuffer(sizes.rows * sizes.units), DType::kF32, {zero, builder.Size(sizes.units), one}};
  };
  const auto sequence = [&] {
    return Access{builder.RandomBuffer(sizes.time * sizes.rows * sizes.units),
                  DType::kF32,
                  {builder.Size(sizes.rows * sizes.units), builder.Size(sizes.units), one}};
  };
  enum { kH, kC, kWork, kX, kY, kBias };
  spec.accesses = {state(),    state(),    state(),
                   sequence(), sequence(), {builder.RandomBuffer(sizes.units), DType::kF32, {zero, zero, one}}};

  RecurrentStage start;
  start.body = {Node(ScalarOp::kLoad, -1, -1, kBias)};
  start.stores = {{kH, 0}};
  spec.before = {start};

  RecurrentStage product;
  product.gates = static_cast<int32_t>(Pick(random, 1, 4));
  product.vectors = static_cast<int32_t>(Pick(random, 1, 3));
  product.input = kH;
  product.panels = Panels(builder, sizes, product);
  product.body = {Node(ScalarOp::kAccumulator),
                  Node(ScalarOp::kLoad, -1, -1, kX),
                  Node(ScalarOp::kAdd, 0, 1),
                  Node(ScalarOp::kTanh, 2),
                  Node(ScalarOp::kAccumulator, -1, -1, product.gates - 1),
                  Node(ScalarOp::kSigmoid, 4),
                  Node(ScalarOp::kLoad, -1, -1, kC),
                  Node(ScalarOp::kMul, 5, 3),
                  Node(ScalarOp::kAdd, 6, 7)};
  product.stores = {{kWork, 3}, {kY, 3}, {kC, 8}};
  RecurrentStage copy;
  copy.vectors = static_cast<int32_t>(Pick(random, 1, 3));
  copy.body = {Node(ScalarOp::kLoad, -1, -1, kWork)};
  copy.stores = {{kH, 0}};
  spec.steps = {product, copy};

  RecurrentStage ended;
  ended.body = {Node(ScalarOp::kConstant)};
  ended.stores = {{kY, 0}};
  spec.after = {ended};
  SpecCase result = builder.Finish(spec, "recurrent");
  result.tolerance = 2e-5;
  return result;
}

}  // namespace kiln::testing

// Random attentions: sizes around the tiles, layouts, masks.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/compile-service/codegen/spec_cases.h"

namespace kiln::testing {
namespace {

using ir::Access;
using ir::AttentionSpec;
using ir::ScalarNode;
using ir::ScalarOp;
using ir::SpecInt;

struct Sizes {
  int64_t batch, m, n;
};

// Strides over (batch,) row, element: rows together, or as they lie when heads are side by side.
std::vector<SpecInt> RowStrides(SpecBuilder& builder, const AttentionSpec& spec, int64_t batch, int64_t rows,
                                int64_t elements, bool shared) {
  const bool side_by_side = builder.Coin();
  std::vector<SpecInt> strides;
  if (!spec.batch.empty()) strides.push_back(builder.Size(shared ? 0 : side_by_side ? elements : rows * elements));
  strides.push_back(builder.Size(side_by_side ? batch * elements : elements));
  strides.push_back(SpecInt::Const(1));
  return strides;
}

// One of: scaled; scaled and an additive mask, whole or the same for all queries; a causal mask by coordinates; a mask
// that leaves some queries nothing for many keys.
void SetScores(SpecBuilder& builder, AttentionSpec& spec, const Sizes& sizes) {
  const auto strides = [&](int64_t batch, int64_t key, int64_t query) {
    std::vector<SpecInt> result;
    if (!spec.batch.empty()) result.push_back(builder.Size(batch));
    result.push_back(builder.Size(key));
    result.push_back(query <= 1 ? SpecInt::Const(query) : builder.Size(query));
    return result;
  };
  spec.scores = {Node(ScalarOp::kAccumulator), Node(ScalarOp::kConstant, -1, -1, 0, 0.25), Node(ScalarOp::kMul, 0, 1)};
  spec.score = 2;
  const auto add_mask = [&](Access access) {
    spec.accesses = {std::move(access)};
    spec.scores.push_back(Node(ScalarOp::kLoad, -1, -1, 0));
    spec.scores.push_back(Node(ScalarOp::kAdd, 2, 3));
    spec.score = 4;
  };
  switch (Pick(builder.random(), 0, 4)) {
    case 0:
      break;
    case 1:
      add_mask({builder.RandomBuffer(sizes.m * std::max<int64_t>(sizes.n, 2)), DType::kF32,
                strides(0, 1, std::max<int64_t>(sizes.n, 2))});
      break;
    case 2:
      add_mask({builder.RandomBuffer(sizes.n), DType::kF32, strides(0, 1, 0)});
      break;
    case 3: {  // key <= query
      ScalarNode key = Node(ScalarOp::kCoordinate, -1, -1, static_cast<int32_t>(spec.batch.size()));
      ScalarNode query = Node(ScalarOp::kCoordinate, -1, -1, static_cast<int32_t>(spec.batch.size()) + 1);
      key.type = query.type = DType::kI64;
      ScalarNode allowed = Node(ScalarOp::kLessEqual, 3, 4);
      allowed.type = DType::kBool;
      ScalarNode select = Node(ScalarOp::kSelect, 5, 2);
      select.c = 6;
      const ScalarNode never = Node(ScalarOp::kConstant, -1, -1, 0, -std::numeric_limits<double>::infinity());
      spec.scores.insert(spec.scores.end(), {key, query, allowed, never, select});
      spec.score = 7;
      break;
    }
    case 4: {
      std::vector<float> mask = RandomValues(builder.random(), sizes.n);
      for (int64_t i = 0; i + 1 < sizes.n; ++i)
        if (i < 70) mask[static_cast<size_t>(i)] = -std::numeric_limits<float>::infinity();
      add_mask({builder.Buffer(DType::kF32, std::move(mask)), DType::kF32, strides(0, 1, 0)});
      break;
    }
  }
}

}  // namespace

SpecCase RandomAttention(std::mt19937_64& random, Target target) {
  SpecBuilder builder(random, target);
  AttentionSpec spec;
  spec.tile.nv = static_cast<int32_t>(Pick(random, 1, 3));
  spec.tile.mr = static_cast<int32_t>(Pick(random, 1, builder.lanes() == 16 ? 8 : 4));
  const int64_t queries = int64_t{spec.tile.nv} * builder.lanes();
  const Sizes sizes{Pick(random, 0, 2) == 0 ? 1 : Pick(random, 1, 3),
                    Pick(random, 0, 3) == 0 ? Pick(random, 0, 2)
                                            : std::max<int64_t>(1, queries * Pick(random, 0, 2) + Pick(random, -1, 1)),
                    Pick(random, 0, 3) == 0 ? Pick(random, 0, 2) : 64 * Pick(random, 0, 2) + Pick(random, 1, 66)};
  if (sizes.batch > 1 || builder.Coin()) spec.batch = {builder.Size(sizes.batch)};
  spec.m = builder.Size(sizes.m);
  spec.n = builder.Size(sizes.n);
  spec.key_elements = static_cast<int32_t>(Pick(random, 1, 40));
  spec.value_elements = static_cast<int32_t>(Pick(random, 1, 40));
  const bool shared = builder.Coin();  // heads of K and V for several of Q
  const auto tensor = [&](int64_t rows, int64_t elements, bool one) {
    const DType storage = Pick(random, 0, 7) == 0 ? DType::kF16 : DType::kF32;
    return Access{builder.RandomBuffer(sizes.batch * rows * elements, storage), storage,
                  RowStrides(builder, spec, sizes.batch, rows, elements, one)};
  };
  spec.q = tensor(sizes.m, spec.key_elements, false);
  spec.k = tensor(sizes.n, spec.key_elements, shared);
  spec.v = tensor(sizes.n, spec.value_elements, shared);
  spec.out = tensor(sizes.m, spec.value_elements, false);
  SetScores(builder, spec, sizes);
  return builder.Finish(spec, "attention");
}

}  // namespace kiln::testing

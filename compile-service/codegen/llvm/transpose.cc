#include "compile-service/codegen/llvm/transpose.h"

namespace kiln::codegen {

using llvm::Value;
using Values = VectorEmitter::Values;

namespace {

// 128 bits, within which shuffles are cheapest on every target.
constexpr int kQuad = 4;

// Elements from[0..3] of the quads of a and b next to each other: 0..3 are a's, 4..7 b's.
Value* ShuffleInQuads(VectorEmitter& e, Value* a, Value* b, const int (&from)[kQuad]) {
  std::vector<int> mask;
  for (int lane = 0; lane < e.lanes(); ++lane) {
    const int element = from[lane % kQuad], quad = lane / kQuad * kQuad;
    mask.push_back(element < kQuad ? quad + element : e.lanes() + quad + element - kQuad);
  }
  return e.ir().CreateShuffleVector(a, b, mask);
}

// Quads quads[i] of a and b, numbered through.
Value* ShuffleQuads(VectorEmitter& e, Value* a, Value* b, const std::vector<int>& quads) {
  std::vector<int> mask;
  for (int quad : quads)
    for (int i = 0; i < kQuad; ++i) mask.push_back(quad * kQuad + i);
  return e.ir().CreateShuffleVector(a, b, mask);
}

// The 4x4 matrices of equal quads of four vectors, transposed.
Values TransposeQuads(VectorEmitter& e, const Values& v) {
  Value* low01 = ShuffleInQuads(e, v[0], v[1], {0, 4, 1, 5});
  Value* high01 = ShuffleInQuads(e, v[0], v[1], {2, 6, 3, 7});
  Value* low23 = ShuffleInQuads(e, v[2], v[3], {0, 4, 1, 5});
  Value* high23 = ShuffleInQuads(e, v[2], v[3], {2, 6, 3, 7});
  return {ShuffleInQuads(e, low01, low23, {0, 1, 4, 5}), ShuffleInQuads(e, low01, low23, {2, 3, 6, 7}),
          ShuffleInQuads(e, high01, high23, {0, 1, 4, 5}), ShuffleInQuads(e, high01, high23, {2, 3, 6, 7})};
}

// Pointers to rows 0, 4, 8…; the rows between are reached by small offsets, which take no registers of their own.
Values EveryFourthRow(VectorEmitter& e, Value* first, Value* stride) {
  Values rows;
  for (int row = 0; row < e.lanes(); row += kQuad)
    rows.push_back(e.Address(first, DType::kF32, e.ir().CreateMul(stride, e.I64(row))));
  return rows;
}

Value* Joined(VectorEmitter& e, std::vector<Value*> parts) {
  while (parts.size() > 1) {
    std::vector<Value*> pairs;
    for (size_t i = 0; i < parts.size(); i += 2) {
      const auto count = llvm::cast<llvm::FixedVectorType>(parts[i]->getType())->getNumElements();
      std::vector<int> mask;
      for (unsigned lane = 0; lane < 2 * count; ++lane) mask.push_back(static_cast<int>(lane));
      pairs.push_back(e.ir().CreateShuffleVector(parts[i], parts[i + 1], mask));
    }
    parts = pairs;
  }
  return parts[0];
}

// The sum of two halves of each vector's lanes: with half as many partial sums of each, a's and b's fit together.
template <class Shuffle>
Values FoldPairs(VectorEmitter& e, const Values& vectors, Shuffle shuffle) {
  Values folded;
  for (size_t i = 0; i < vectors.size(); i += 2) {
    Value *a = vectors[i], *b = vectors[i + 1 < vectors.size() ? i + 1 : i];
    folded.push_back(e.ir().CreateFAdd(shuffle(a, b, false), shuffle(a, b, true)));
  }
  return folded;
}

}  // namespace

Values LoadFourTransposed(VectorEmitter& e, Value* first, Value* stride) {
  llvm::IRBuilder<>& b = e.ir();
  auto* quad = llvm::FixedVectorType::get(b.getFloatTy(), kQuad);
  const Values rows = EveryFourthRow(e, first, stride);
  Values four;
  for (int i = 0; i < kQuad; ++i) {
    std::vector<Value*> parts;
    for (Value* row : rows)
      parts.push_back(b.CreateAlignedLoad(quad, e.Address(row, DType::kF32, b.CreateMul(stride, e.I64(i))),
                                          llvm::Align(sizeof(float))));
    four.push_back(Joined(e, parts));
  }
  return TransposeQuads(e, four);
}

void StoreFourTransposed(VectorEmitter& e, const Values& four, Value* first, Value* stride) {
  llvm::IRBuilder<>& b = e.ir();
  const Values rows = EveryFourthRow(e, first, stride), transposed = TransposeQuads(e, four);
  for (size_t q = 0; q < rows.size(); ++q)
    for (int i = 0; i < kQuad; ++i) {
      std::vector<int> mask;
      for (int element = 0; element < kQuad; ++element) mask.push_back(static_cast<int>(q) * kQuad + element);
      Value* part = b.CreateShuffleVector(transposed[static_cast<size_t>(i)], mask);
      b.CreateAlignedStore(part, e.Address(rows[q], DType::kF32, b.CreateMul(stride, e.I64(i))),
                           llvm::Align(sizeof(float)));
    }
}

Value* LaneSums(VectorEmitter& e, Values vectors) {
  vectors = FoldPairs(e, vectors, [&](Value* a, Value* b, bool high) {
    return high ? ShuffleInQuads(e, a, b, {2, 6, 3, 7}) : ShuffleInQuads(e, a, b, {0, 4, 1, 5});
  });
  vectors = FoldPairs(e, vectors, [&](Value* a, Value* b, bool high) {
    return high ? ShuffleInQuads(e, a, b, {2, 3, 6, 7}) : ShuffleInQuads(e, a, b, {0, 1, 4, 5});
  });
  // Lane i of a quad now is a part of the sum of vector i of four; quads hold the other parts.
  const int quads = e.lanes() / kQuad;
  if (quads == 4)
    vectors = FoldPairs(e, vectors, [&](Value* a, Value* b, bool high) {
      return ShuffleQuads(e, a, b, high ? std::vector<int>{2, 3, 6, 7} : std::vector<int>{0, 1, 4, 5});
    });
  if (quads > 1)
    vectors = FoldPairs(e, vectors, [&](Value* a, Value* b, bool high) {
      std::vector<int> order;
      for (int quad = high ? 1 : 0; quad < 2 * quads; quad += 2) order.push_back(quad);
      return ShuffleQuads(e, a, b, order);
    });
  return vectors[0];
}

}  // namespace kiln::codegen

#include "common/signature/signature.h"

#include <gtest/gtest.h>

#include <random>

namespace kiln {
namespace {

alignas(64) float memory[4096];

Signature Of(std::vector<TensorRef> inputs, std::vector<int64_t> parameters = {}) {
  Signature signature;
  BuildSignature(inputs, parameters, &signature);
  return signature;
}
TensorRef Ref(Dims dims) {
  return MakeRef(DType::kF32, dims, memory);
}

TEST(Signature, ChangesWithEveryFactOfACall) {
  TensorRef other_dtype = Ref({2, 3});
  other_dtype.dtype = DType::kI32;
  const TensorRef slice{DType::kF32, {2, 3}, {4, 1}, memory};  // x[:, 1:4] has the shape of a contiguous tensor
  const TensorRef transposed{DType::kF32, {2, 3}, {1, 2}, memory};
  const TensorRef repeated{DType::kF32, {2, 3}, {0, 1}, memory};
  const TensorRef unaligned = MakeRef(DType::kF32, {2, 3}, memory + 1);
  const std::vector<Signature> all{Of({Ref({2, 3})}),
                                   Of({Ref({3, 2})}),
                                   Of({Ref({6})}),
                                   Of({Ref({2, 3, 1})}),
                                   Of({other_dtype}),
                                   Of({slice}),
                                   Of({transposed}),
                                   Of({repeated}),
                                   Of({unaligned}),
                                   Of({Ref({2, 3})}, {1}),
                                   Of({}),
                                   Of({Ref({2, 3}), Ref({2, 3})}),
                                   Of({Ref({2, 3})}, {1, 0})};
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t k = 0; k < all.size(); ++k) EXPECT_EQ(all[i] == all[k], i == k) << i << " " << k;
}

TEST(Signature, IgnoresStridesOfDimsOfSizeOneAndOfEmptyTensors) {
  const TensorRef odd{DType::kF32, {1, 3, 1}, {77, 1, -5}, memory};
  EXPECT_EQ(Of({odd}), Of({Ref({1, 3, 1})}));
  const TensorRef empty{DType::kF32, {0, 3}, {1, 9}, memory};
  EXPECT_EQ(Of({empty}), Of({Ref({0, 3})}));
  const TensorRef spread{DType::kF32, {2, 1, 3}, {8, 5, 2}, memory},
      again{DType::kF32, {2, 1, 3}, {8, 1000, 2}, memory};
  EXPECT_EQ(Of({spread}), Of({again}));
}

TEST(Signature, ParsesToWhatItWasBuiltFrom) {
  std::mt19937 random(3);
  for (int i = 0; i < 500; ++i) {
    std::vector<TensorRef> inputs;
    for (size_t k = random() % 4; k > 0; --k) {
      TensorRef ref{random() % 2 ? DType::kF32 : DType::kI64, {}, {}, memory + random() % 3};
      for (size_t d = random() % (limits::kRankMax + 1); d > 0; --d) {
        ref.dims.push_back(static_cast<int64_t>(random() % 4));
        ref.strides.push_back(static_cast<int64_t>(random() % 5) - 2);
      }
      if (random() % 2) ref.strides = ContiguousStrides(ref.dims);
      inputs.push_back(ref);
    }
    const std::vector<int64_t> parameters(random() % 3, 5);
    const Signature signature = Of(inputs, parameters);
    const auto parts = ParseSignature(signature.words, static_cast<int>(inputs.size()));
    ASSERT_TRUE(parts.has_value()) << ToString(parts.error());
    ASSERT_EQ(parts->inputs.size(), inputs.size());
    EXPECT_EQ(parts->parameters, parameters);
    std::vector<TensorRef> rebuilt;
    for (size_t k = 0; k < inputs.size(); ++k) {
      EXPECT_EQ(parts->inputs[k].dims, inputs[k].dims);
      EXPECT_EQ(parts->inputs[k].alignment, AlignmentOf(inputs[k]));
      rebuilt.push_back({parts->inputs[k].dtype, parts->inputs[k].dims, parts->inputs[k].strides, inputs[k].data});
    }
    EXPECT_EQ(Of(rebuilt, parameters), signature);
  }
}

TEST(Signature, RejectsMalformedWords) {
  const Signature good = Of({TensorRef{DType::kF32, {2, 3}, {4, 1}, memory}});
  for (size_t size = 0; size < good.words.size(); ++size)
    EXPECT_FALSE(ParseSignature(std::span(good.words).first(size), 1).has_value());
  const uint64_t f32 = 1;
  for (uint64_t header : {uint64_t{0}, f32 << 8 | 99, f32 | uint64_t{9} << 8, f32 | uint64_t{7} << 16,
                          f32 | uint64_t{5} << 24, f32 | uint64_t{1} << 60}) {
    std::vector<uint64_t> words = good.words;
    words[0] = header;
    EXPECT_FALSE(ParseSignature(words, 1).has_value()) << header;
  }
  // Dims that no tensor has, an empty one included.
  const uint64_t header = Of({TensorRef{DType::kF32, {2, 3, 4}, {12, 4, 1}, memory}}).words[0];
  for (uint64_t last : {uint64_t{1} << 40, uint64_t{0}}) {
    const std::vector<uint64_t> words = {header, uint64_t{1} << 40, uint64_t{1} << 40, last};
    EXPECT_FALSE(ParseSignature(words, 1).has_value()) << last;
  }
}

TEST(Signature, ReadsWell) {
  const TensorRef slice{DType::kF32, {2, 3}, {4, 1}, memory + 1};
  const Signature signature = Of({Ref({2, 64}), slice}, {7, 9});
  EXPECT_EQ(ToString(*ParseSignature(signature.words, 2)), "f32[2, 64] f32[2, 3]:strides[4, 1]:unaligned (7, 9)");
}

}  // namespace
}  // namespace kiln

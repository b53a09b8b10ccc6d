#include "common/tensor/tensor.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

namespace kiln {
namespace {

TEST(Dims, HoldsUpToTheRankLimit) {
  Dims dims{2, 3};
  dims.push_back(4);
  EXPECT_EQ(dims.ToString(), "[2, 3, 4]");
  EXPECT_EQ(dims.rank(), 3);
  EXPECT_EQ(dims.back(), 4);
  EXPECT_EQ(dims, (Dims{2, 3, 4}));
  EXPECT_NE(dims, (Dims{2, 3}));
  EXPECT_EQ(Dims::Filled(2, 7), (Dims{7, 7}));
  EXPECT_EQ(Dims().ToString(), "[]");
}

TEST(CheckedElements, RefusesWhatCannotBe) {
  EXPECT_EQ(CheckedElements({2, 3}, DType::kF32).value(), 6);
  EXPECT_EQ(CheckedElements({}, DType::kF32).value(), 1);
  EXPECT_EQ(CheckedElements({0, 5}, DType::kF32).value(), 0);
  EXPECT_EQ(CheckedElements({-1}, DType::kF32).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(CheckedElements({int64_t{1} << 40}, DType::kU8).value(), int64_t{1} << 40);
  EXPECT_EQ(CheckedElements({int64_t{1} << 40}, DType::kF32).error().code, ErrorCode::kLimitExceeded);
  EXPECT_EQ(CheckedElements({int64_t{1} << 32, int64_t{1} << 32}, DType::kU8).error().code, ErrorCode::kLimitExceeded);
  EXPECT_EQ(CheckedElements({0, INT64_MAX}, DType::kU8).error().code, ErrorCode::kLimitExceeded);
}

TEST(TensorRef, ContiguousIgnoresStridesOfSizeOneAndEmpty) {
  float data[24] = {};
  TensorRef ref = MakeRef(DType::kF32, {2, 1, 3}, data);
  EXPECT_EQ(ref.strides, (Dims{3, 3, 1}));
  EXPECT_TRUE(ref.IsContiguous());
  ref.strides[1] = 100;
  EXPECT_TRUE(ref.IsContiguous());
  ref.strides[0] = 4;
  EXPECT_FALSE(ref.IsContiguous());
  ref.dims[1] = 0;
  EXPECT_TRUE(ref.IsContiguous());
}

TEST(Buffer, IsAlignedAndNotNullAtSizeZero) {
  for (size_t bytes : {0, 1, 63, 64, 1000}) {
    const auto buffer = Buffer::Allocate(bytes);
    ASSERT_NE(buffer->data(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0u);
    EXPECT_EQ(buffer->size(), bytes);
  }
  EXPECT_NE(Tensor::Allocate(DType::kF32, {0, 3}).ref.data, nullptr);
}

TEST(Buffer, WrapReleasesItsOwnerWithTheLastUse) {
  auto owner = std::make_shared<std::vector<float>>(4);
  std::weak_ptr<std::vector<float>> watch = owner;
  auto buffer = Buffer::Wrap(owner->data(), 16, owner);
  owner.reset();
  EXPECT_FALSE(watch.expired());
  buffer.reset();
  EXPECT_TRUE(watch.expired());
}

template <class T>
int64_t Offset(const TensorRef& ref, const std::vector<int64_t>& index) {
  int64_t offset = 0;
  for (int i = 0; i < ref.rank(); ++i) offset += index[static_cast<size_t>(i)] * ref.strides[i];
  return offset;
}

// A random strided view (permuted, stepped, reversed, broadcast) into a fresh block.
struct Strided {
  std::vector<uint8_t> block;
  TensorRef ref;
};
Strided RandomView(std::mt19937_64& random, DType dtype, const Dims& dims, bool may_broadcast) {
  Strided view;
  view.ref.dtype = dtype;
  view.ref.dims = dims;
  view.ref.strides = Dims::Filled(dims.rank(), 0);
  std::vector<int> order(dims.size());
  std::iota(order.begin(), order.end(), 0);
  if (random() % 2) std::shuffle(order.begin(), order.end(), random);
  int64_t step = 1, low = 0, high = 0;
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    if (random() % 4 == 0) step *= 2;
    int64_t stride = random() % 4 == 0 ? -step : step;
    if (may_broadcast && random() % 5 == 0) stride = 0;
    view.ref.strides[*it] = stride;
    const int64_t reach = stride * std::max<int64_t>(dims[*it] - 1, 0);
    low += std::min<int64_t>(reach, 0);
    high += std::max<int64_t>(reach, 0);
    step *= std::max<int64_t>(dims[*it], 1);
  }
  const size_t width = static_cast<size_t>(DTypeBytes(dtype));
  view.block.resize(static_cast<size_t>(high - low + 1) * width);
  for (uint8_t& byte : view.block) byte = static_cast<uint8_t>(random());
  view.ref.data = view.block.data() + static_cast<size_t>(-low) * width;
  return view;
}

TEST(CopyElements, EqualsElementByElementOnRandomViews) {
  const uint64_t seed = 20240607;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const DType dtypes[] = {DType::kU8, DType::kF16, DType::kF32, DType::kI64};
  for (int round = 0; round < 2000; ++round) {
    const DType dtype = dtypes[random() % 4];
    Dims dims;
    for (int i = static_cast<int>(random() % 5); i > 0; --i) {
      const int64_t choices[] = {0, 1, 1, 2, 3, 5};
      dims.push_back(choices[random() % 6]);
    }
    const Strided from = RandomView(random, dtype, dims, true);
    Strided to = RandomView(random, dtype, dims, false);
    Strided expected = to;
    expected.ref.data = expected.block.data() + (static_cast<uint8_t*>(to.ref.data) - to.block.data());
    const size_t width = static_cast<size_t>(DTypeBytes(dtype));
    std::vector<int64_t> index(dims.size(), 0);
    for (int64_t count = NumElements(dims); count > 0; --count) {
      std::copy_n(
          static_cast<uint8_t*>(from.ref.data) + Offset<void>(from.ref, index) * static_cast<int64_t>(width), width,
          static_cast<uint8_t*>(expected.ref.data) + Offset<void>(expected.ref, index) * static_cast<int64_t>(width));
      for (size_t axis = dims.size(); axis-- > 0;) {
        if (++index[axis] < dims[static_cast<int>(axis)]) break;
        index[axis] = 0;
      }
    }
    CopyElements(from.ref, to.ref);
    ASSERT_EQ(to.block, expected.block) << "round " << round << " dims " << dims.ToString() << " strides "
                                        << from.ref.strides.ToString() << " -> " << to.ref.strides.ToString();
  }
}

TEST(MakeContiguous, TransposesIntoRows) {
  const float values[] = {1, 2, 3, 4, 5, 6};
  Tensor tensor = Tensor::Of<float>(DType::kF32, {2, 3}, values);
  TensorRef transposed = tensor.ref;
  transposed.dims = {3, 2};
  transposed.strides = {1, 3};
  const Tensor copy = MakeContiguous(transposed);
  const auto span = copy.values<float>();
  EXPECT_EQ(std::vector<float>(span.begin(), span.end()), (std::vector<float>{1, 4, 2, 5, 3, 6}));
}

}  // namespace
}  // namespace kiln

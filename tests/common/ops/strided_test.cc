// Not a bit of a kernel's result depends on how its inputs lie in memory: every case that matches elsewhere, and random
// shapes (0 and 1 included), through random strides (0 and negative included).
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/common/ops/case_file.h"

namespace kiln::testing {
namespace {

using Random = std::mt19937_64;

int64_t Between(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

// The same elements behind other strides: dims in a random memory order, reversed or spaced at random.
Tensor Scattered(Random& random, const TensorRef& from) {
  const int rank = from.rank();
  std::vector<int> order(static_cast<size_t>(rank));
  for (int d = 0; d < rank; ++d) order[static_cast<size_t>(d)] = d;
  std::shuffle(order.begin(), order.end(), random);
  Dims strides = Dims::Filled(rank, 0);
  int64_t span = 1;
  int64_t lowest = 0;
  for (const int d : order) {
    const int64_t spacing = Between(random, 1, 2);
    const bool reversed = Between(random, 0, 2) == 0;
    strides[d] = span * spacing * (reversed ? -1 : 1);
    const int64_t reach = from.dims[d] > 0 ? span * spacing * (from.dims[d] - 1) : 0;
    if (reversed) lowest -= reach;
    span += reach;
  }
  Tensor result;
  result.buffer = Buffer::Allocate(static_cast<size_t>(span * DTypeBytes(from.dtype)));
  result.ref = {from.dtype, from.dims, strides,
                static_cast<char*>(result.buffer->data()) - lowest * DTypeBytes(from.dtype)};
  CopyElements(from, result.ref);
  return result;
}

void ExpectSameResults(const OpCase& contiguous, const OpCase& strided, const std::string& what) {
  const Result<std::vector<Tensor>> a = RunOp(contiguous);
  const Result<std::vector<Tensor>> b = RunOp(strided);
  ASSERT_EQ(a.has_value(), b.has_value()) << what;
  if (!a) return;
  for (size_t i = 0; i < a->size(); ++i) {
    EXPECT_EQ(Difference((*b)[i], (*a)[i]), "") << what << ", output " << i;
    const size_t bytes = static_cast<size_t>((*a)[i].ref.bytes());
    EXPECT_TRUE(bytes == 0 || std::memcmp((*a)[i].ref.data, (*b)[i].ref.data, bytes) == 0)
        << what << ", output " << i << " is rounded elsewhere";
  }
}

uint64_t Seed() {
  const char* text = std::getenv("KILN_TEST_SEED");
  return text != nullptr ? std::stoull(text) : std::random_device()();
}

TEST(Strided, EveryCaseGivesTheSameThroughAnyStrides) {
  const uint64_t seed = Seed();
  SCOPED_TRACE("KILN_TEST_SEED=" + std::to_string(seed));
  Random random(seed);
  for (const FileCase& file_case : ReadCaseFile(KILN_SOURCE_DIR "/tests/common/ops/cases.txt")) {
    for (int round = 0; round < 3; ++round) {
      OpCase strided = file_case.op;
      std::vector<Tensor> kept;
      for (std::optional<TensorRef>& input : strided.inputs) {
        if (!input) continue;
        kept.push_back(Scattered(random, *input));
        input = kept.back().ref;
      }
      ExpectSameResults(file_case.op, strided, file_case.text);
    }
  }
}

DType RandomType(Random& random, TensorOp op) {
  static constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kI8,
                                     DType::kU8,  DType::kI16, DType::kU16, DType::kI32,  DType::kU32,
                                     DType::kI64, DType::kU64, DType::kBool};
  while (true) {
    const DType dtype = kTypes[Between(random, 0, std::size(kTypes) - 1)];
    if (FindReferenceKernel(op, dtype)) return dtype;
  }
}

Tensor RandomTensor(Random& random, DType dtype, const Dims& dims) {
  std::vector<double> values(static_cast<size_t>(NumElements(dims)));
  // Never zero, so that divisors are valid; floats with all their digits, so that every sum is rounded.
  for (double& value : values)
    value = IsFloat(dtype) ? std::uniform_real_distribution<double>(0.1, 4)(random)
                           : static_cast<double>(Between(random, 1, 4));
  return Make(dtype, dims, values);
}

// A broadcast operand of `dims`, through a view with stride 0 where a dim of size 1 is stretched by hand.
TensorRef Stretched(Random& random, const Tensor& small, const Dims& dims) {
  TensorRef view = small.ref;
  for (int d = 0; d < dims.rank(); ++d) {
    if (small.dims()[d] != 1 || dims[d] == 1 || Between(random, 0, 1) == 0) continue;
    view.dims[d] = dims[d];
    view.strides[d] = 0;
  }
  return view;
}

TEST(Strided, ElementwiseAndReductionsOnRandomShapes) {
  const uint64_t seed = Seed();
  SCOPED_TRACE("KILN_TEST_SEED=" + std::to_string(seed));
  Random random(seed);
  for (int i = 0; i < TensorOpCount(); ++i) {
    const TensorOpInfo& row = TensorOpRow(i);
    const bool elementwise = row.family == OpFamily::kElementwise;
    if (!elementwise && row.family != OpFamily::kReduction) continue;
    if (row.op == TensorOp::kPRelu || row.op == TensorOp::kClip) continue;  // their operands do not broadcast both ways
    for (int round = 0; round < 12; ++round) {
      Dims dims;
      for (int64_t d = Between(random, 0, 4); d > 0; --d) dims.push_back(Between(random, 0, 4));
      OpCase contiguous;
      contiguous.op = row.op;
      if (row.op == TensorOp::kCast)
        contiguous.attributes.Set("to", static_cast<int64_t>(RandomType(random, TensorOp::kAbs)));
      OpCase strided = contiguous;
      std::vector<Tensor> kept;
      const DType dtype = RandomType(random, row.op);
      const int inputs = elementwise ? (row.max_inputs == kVariadic ? 3 : row.max_inputs) : 1;
      for (int k = 0; k < inputs; ++k) {
        Dims own = dims;
        for (int64_t& dim : own) {
          if (inputs > 1 && Between(random, 0, 2) == 0) dim = 1;
        }
        const bool condition = row.op == TensorOp::kWhere && k == 0;
        kept.push_back(RandomTensor(random, condition ? DType::kBool : dtype, own));
        const Tensor small = kept.back();
        kept.push_back(Scattered(random, small.ref));
        const TensorRef view = Stretched(random, kept.back(), dims);
        kept.push_back(MakeContiguous(view));
        contiguous.inputs.emplace_back(kept.back().ref);
        strided.inputs.emplace_back(view);
      }
      if (!elementwise && !dims.empty()) {
        kept.push_back(I64({1}, {Between(random, -dims.rank(), dims.rank() - 1)}));
        contiguous.inputs.emplace_back(kept.back().ref);
        strided.inputs.emplace_back(kept.back().ref);
      }
      ExpectSameResults(contiguous, strided,
                        std::string(row.name) + " on " + dims.ToString() + " of " + std::string(DTypeName(dtype)));
    }
  }
}

// A matrix product of few or many rows, columns and products per sum, of batches of one operand or both.
OpCase RandomProduct(Random& random, std::vector<Tensor>& kept) {
  static constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kF16, DType::kI32};
  static constexpr int64_t kSizes[] = {0, 1, 2, 3, 4, 7, 17, 40};
  const auto size = [&] { return kSizes[Between(random, 0, std::size(kSizes) - 1)]; };
  const int64_t rows = size(), columns = size(), depth = Between(random, 0, 300);
  const DType dtype = kTypes[Between(random, 0, std::size(kTypes) - 1)];
  OpCase product;
  if (Between(random, 0, 2) == 0) {
    product.op = TensorOp::kGemm;
    const int64_t left = Between(random, 0, 1), right = Between(random, 0, 1);
    product.attributes.Set("transA", left);
    product.attributes.Set("transB", right);
    kept.push_back(RandomTensor(random, dtype, left != 0 ? Dims{depth, rows} : Dims{rows, depth}));
    kept.push_back(RandomTensor(random, dtype, right != 0 ? Dims{columns, depth} : Dims{depth, columns}));
    kept.push_back(RandomTensor(random, dtype, {columns}));
  } else {
    product.op = TensorOp::kMatMul;
    const Dims batch = Between(random, 0, 1) == 0 ? Dims{} : Dims{Between(random, 1, 3), Between(random, 1, 3)};
    Dims left = batch, right = Between(random, 0, 1) == 0 ? Dims{} : batch;
    for (const int64_t dim : {rows, depth}) left.push_back(dim);
    for (const int64_t dim : {depth, columns}) right.push_back(dim);
    kept.push_back(RandomTensor(random, dtype, left));
    kept.push_back(RandomTensor(random, dtype, right));
  }
  for (const Tensor& tensor : kept) product.inputs.emplace_back(tensor.ref);
  return product;
}

TEST(Strided, MatrixProductsOnRandomShapes) {
  const uint64_t seed = Seed();
  SCOPED_TRACE("KILN_TEST_SEED=" + std::to_string(seed));
  Random random(seed);
  for (int round = 0; round < 300; ++round) {
    std::vector<Tensor> kept;
    const OpCase contiguous = RandomProduct(random, kept);
    OpCase strided = contiguous;
    for (std::optional<TensorRef>& input : strided.inputs) {
      kept.push_back(Scattered(random, *input));
      input = kept.back().ref;
    }
    ExpectSameResults(contiguous, strided,
                      std::string(OpInfo(contiguous.op).name) + " of " + contiguous.inputs[0]->dims.ToString() +
                          " and " + contiguous.inputs[1]->dims.ToString());
  }
}

}  // namespace
}  // namespace kiln::testing

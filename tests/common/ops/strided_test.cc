// A kernel's result does not depend on how its inputs lie in memory: every case that matches elsewhere, and random
// shapes (0 and 1 included), through random strides (0 and negative included).
#include <gtest/gtest.h>

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
  for (size_t i = 0; i < a->size(); ++i) EXPECT_EQ(Difference((*b)[i], (*a)[i]), "") << what << ", output " << i;
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
  // Small and never zero: sums are exact in every type, and divisors are valid.
  for (double& value : values) value = static_cast<double>(Between(random, 1, 4)) * (IsFloat(dtype) ? 0.5 : 1);
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

}  // namespace
}  // namespace kiln::testing

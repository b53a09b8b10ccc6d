// Wrong operands end in an error that names the place, from the rule or from the kernel; never in undefined behaviour.
#include <gtest/gtest.h>

#include "tests/common/ops/op_runner.h"

namespace kiln::testing {
namespace {

class Call {
 public:
  explicit Call(TensorOp op) { case_.op = op; }
  Call& In(Tensor tensor) {
    kept_.push_back(std::move(tensor));
    case_.inputs.emplace_back(kept_.back().ref);
    return *this;
  }
  Call& Absent() {
    case_.inputs.emplace_back();
    return *this;
  }
  Call& Set(const std::string& name, AttributeValue value) {
    case_.attributes.Set(name, std::move(value));
    return *this;
  }
  Call& Outputs(size_t count) {
    case_.outputs = count;
    return *this;
  }
  // The error as text, or "ok".
  std::string Error() const {
    const auto result = RunOp(case_);
    return result ? "ok" : ToString(result.error());
  }

 private:
  OpCase case_;
  std::vector<Tensor> kept_;
};

Tensor Zeros(const Dims& dims) {
  return Tensor::Zeros(DType::kF32, dims);
}

void ExpectError(const Call& call, const std::string& code, const std::string& part) {
  const std::string error = call.Error();
  EXPECT_EQ(error.substr(0, error.find(':')), code) << error;
  EXPECT_NE(error.find(part), std::string::npos) << error;
}

TEST(Rejection, DivisorsThatAreZero) {
  const std::string zero = "integer division by zero: input 1 holds a 0";
  for (const TensorOp op : {TensorOp::kDiv, TensorOp::kMod})
    ExpectError(Call(op).In(I64({2}, {1, 2})).In(I64({2}, {3, 0})), "invalid_argument", zero);
  ExpectError(Call(TensorOp::kCheckDivisors).In(I64({2, 2}, {1, 2, 0, 3})), "invalid_argument", zero);
  ExpectError(Call(TensorOp::kCheckDivisors).In(I32({1}, {0})), "invalid_argument", zero);
}

TEST(Rejection, IndicesOutsideTheirDim) {
  ExpectError(Call(TensorOp::kGather).In(Zeros({2, 3})).In(I64({2}, {0, 3})).Set("axis", int64_t{1}), "out_of_range",
              "index 3 is outside axis 1, which has 3 entries");
  ExpectError(Call(TensorOp::kGather).In(Zeros({2})).In(I64({1}, {-3})), "out_of_range", "index -3");
  ExpectError(Call(TensorOp::kGather).In(Zeros({0, 2})).In(I64({1}, {0})), "out_of_range", "0 entries");
  ExpectError(Call(TensorOp::kGatherElements).In(Zeros({2, 2})).In(I64({1, 1}, {2})), "out_of_range", "index 2");
  ExpectError(Call(TensorOp::kGatherND).In(Zeros({2, 2})).In(I64({1, 2}, {0, 5})), "out_of_range",
              "index 5 is outside axis 1");
  ExpectError(Call(TensorOp::kCheckIndices).In(I64({3}, {0, -4, 3})).In(Zeros({2, 3})).Set("axis", int64_t{1}),
              "out_of_range", "index -4 is outside axis 1, which has 3 entries");
  ExpectError(Call(TensorOp::kCheckIndices).In(I64({1}, {INT64_MIN})).In(Zeros({3})), "out_of_range", "index -92233");
  ExpectError(Call(TensorOp::kCheckIndices).In(I64({1}, {0})).In(Zeros({0, 3})), "out_of_range", "0 entries");
  ExpectError(Call(TensorOp::kCheckIndices).In(I64({2, 2}, {1, 2, 0, 3})).In(Zeros({2, 3})).Set("tuple", int64_t{1}),
              "out_of_range", "index 3 is outside axis 1");
  ExpectError(Call(TensorOp::kCheckIndices).In(I64({1, 3}, {0, 0, 0})).In(Zeros({2, 3})).Set("tuple", int64_t{1}),
              "shape_mismatch", "3 entries; the data has 2 axes");
  ExpectError(Call(TensorOp::kScatterND).In(Zeros({3})).In(I64({1, 1}, {7})).In(Zeros({1})), "out_of_range", "index 7");
  ExpectError(Call(TensorOp::kScatterElements).In(Zeros({3})).In(I64({1}, {3})).In(Zeros({1})), "out_of_range",
              "index 3");
  ExpectError(Call(TensorOp::kReverseSequence).In(Zeros({2, 1})).In(I64({1}, {3})), "out_of_range",
              "sequence length 3");
}

TEST(Rejection, ValuesThatHaveNoMeaning) {
  ExpectError(Call(TensorOp::kDiv).In(I64({2}, {1, 2})).In(I64({2}, {1, 0})), "invalid_argument", "division by zero");
  ExpectError(Call(TensorOp::kMod).In(I64({1}, {1})).In(I64({1}, {0})), "invalid_argument", "division by zero");
  ExpectError(Call(TensorOp::kRange).In(I64({}, {0})).In(I64({}, {4})).In(I64({}, {0})), "invalid_argument",
              "delta of Range is 0");
  ExpectError(
      Call(TensorOp::kSlice).In(Zeros({4})).In(I64({1}, {0})).In(I64({1}, {4})).In(I64({1}, {0})).In(I64({1}, {0})),
      "invalid_argument", "step 0 of Slice is 0");
  ExpectError(Call(TensorOp::kTopK).In(Zeros({2})).In(I64({1}, {3})).Outputs(2), "shape_mismatch", "k of TopK is 3");
  ExpectError(Call(TensorOp::kConstantOfShape).In(I64({1}, {-1})), "shape_mismatch", "negative");
  ExpectError(Call(TensorOp::kTile).In(Zeros({2})).In(I64({1}, {-1})), "shape_mismatch", "negative");
  ExpectError(Call(TensorOp::kExpand).In(Zeros({1})).In(I64({1}, {-3})), "shape_mismatch", "negative");
  ExpectError(Call(TensorOp::kTranspose).In(Zeros({2, 2})).Set("perm", std::vector<int64_t>{0, 0}), "invalid_argument",
              "twice");
}

TEST(Rejection, OperandsOfResizeHaveTheirTypes) {
  ExpectError(Call(TensorOp::kResize).In(Zeros({1, 2})).Absent().In(I64({2}, {1, 2})), "shape_mismatch",
              "input 2 is i64; the op takes f32");
  ExpectError(Call(TensorOp::kResize).In(Zeros({1, 2})).Absent().Absent().In(Zeros({2})), "shape_mismatch",
              "input 3 is f32");
  ExpectError(Call(TensorOp::kResize).In(Zeros({1, 2})).In(I64({4}, {0, 0, 1, 1})).In(F32({2}, {1, 2})),
              "shape_mismatch", "roi of Resize");
}

TEST(Rejection, ShapesThatContradictEachOther) {
  using Ints = std::vector<int64_t>;
  ExpectError(Call(TensorOp::kPad).In(Zeros({2})).In(I64({2}, {2, 0})).Set("mode", std::string("reflect")),
              "shape_mismatch", "reflect pads of dim 0");
  ExpectError(Call(TensorOp::kPad).In(Zeros({2})).In(I64({2}, {1, 0})).In(Zeros({0})), "shape_mismatch",
              "must hold one element");
  ExpectError(Call(TensorOp::kConv).In(Zeros({1, 1, 2})).In(Zeros({1, 1, 3})), "shape_mismatch", "the kernel spans 3");
  ExpectError(Call(TensorOp::kConv).In(Zeros({1, 2, 4})).In(Zeros({1, 1, 3})), "shape_mismatch", "channels");
  ExpectError(Call(TensorOp::kConv).In(Zeros({1, 1, 4})).In(Zeros({2, 1, 3})).In(Zeros({1})), "shape_mismatch", "bias");
  ExpectError(Call(TensorOp::kConvTranspose).In(Zeros({1, 1, 4})).In(Zeros({1, 2, 3})).In(Zeros({1})), "shape_mismatch",
              "bias");
  ExpectError(Call(TensorOp::kMaxPool).In(Zeros({1, 1, 2})).Set("kernel_shape", Ints{3}), "shape_mismatch",
              "the kernel spans 3");
  ExpectError(Call(TensorOp::kGemm).In(Zeros({2, 3})).In(Zeros({3, 2})).In(Zeros({3})), "shape_mismatch", "of C");
  ExpectError(
      Call(TensorOp::kBatchNormalization).In(Zeros({1, 3})).In(Zeros({3})).In(Zeros({2})).In(Zeros({3})).In(Zeros({3})),
      "shape_mismatch", "length of input 2");
  ExpectError(Call(TensorOp::kLSTM).In(Zeros({2, 1, 2})).In(Zeros({1, 8, 2})).In(Zeros({1, 8, 2})).In(Zeros({1, 8})),
              "shape_mismatch", "dim 1 of B");
  ExpectError(Call(TensorOp::kLSTM).In(Zeros({2, 1, 2})).In(Zeros({1, 8, 2})).In(Tensor::Zeros(DType::kF64, {1, 8, 2})),
              "shape_mismatch", "input 2 is f64");
  ExpectError(Call(TensorOp::kOneHot).In(I64({1}, {0})).In(I64({0}, {})).In(Zeros({2})), "shape_mismatch",
              "one element");
  ExpectError(Call(TensorOp::kOneHot).In(I64({1}, {0})).In(I64({}, {2})).In(Zeros({1})), "shape_mismatch",
              "off and on");
  ExpectError(Call(TensorOp::kQuantizeLinear).In(Zeros({2})).In(Zeros({3})).Set("axis", int64_t{0}), "shape_mismatch",
              "the length of the scale");
  ExpectError(Call(TensorOp::kSplit).In(Zeros({4})).In(I64({2}, {1, 2})).Outputs(2), "shape_mismatch",
              "sum of the sizes");
  ExpectError(Call(TensorOp::kDepthToSpace).In(Zeros({1, 3, 1, 1})).Set("blocksize", int64_t{2}), "shape_mismatch",
              "multiple of 4");
  ExpectError(Call(TensorOp::kCompress).In(Zeros({2})).In(BoolTensor({3}, {true, true, true})), "shape_mismatch",
              "3 entries for 2");
}

TEST(Rejection, NumbersThatNoArithmeticHolds) {
  using Ints = std::vector<int64_t>;
  for (const int64_t pad : {INT64_MIN, INT64_MAX, int64_t{1} << 40}) {
    ExpectError(Call(TensorOp::kMaxPool).In(Zeros({1, 1, 4})).Set("kernel_shape", Ints{2}).Set("pads", Ints{0, pad}),
                "invalid_argument", "a pad beyond 2^31");
    ExpectError(Call(TensorOp::kConvTranspose)
                    .In(Zeros({1, 1, 4}))
                    .In(Zeros({1, 1, 3}))
                    .Set("output_padding", Ints{pad})
                    .Set("strides", Ints{2}),
                "invalid_argument", "`output_padding` holds");
  }
  ExpectError(Call(TensorOp::kCol2Im).In(Zeros({1, 4, 1})).In(I64({2}, {2, 2})).In(I64({2}, {0, 2})), "shape_mismatch",
              "entry 0 of the block shape is 0");
}

TEST(Rejection, DtypesWithoutAKernelNameOpAndDtype) {
  const auto kernel = FindReferenceKernel(TensorOp::kSqrt, DType::kI64);
  ASSERT_FALSE(kernel);
  EXPECT_EQ(ToString(kernel.error()), "unsupported: op Sqrt has no reference kernel for dtype i64");
}

TEST(Rejection, SpectraOfNothing) {
  const auto dft = [](const Dims& dims) { return Call(TensorOp::kDFT).In(Zeros(dims)); };
  ExpectError(dft({1, 4, 3}), "shape_mismatch", "the last dim of input 0 is 3; it is 1 for real and 2 for complex");
  ExpectError(dft({1, 4, 2}).Set("onesided", int64_t{1}), "shape_mismatch", "takes real ones");
  ExpectError(dft({1, 4, 1}).Set("onesided", int64_t{1}).Set("inverse", int64_t{1}), "shape_mismatch",
              "takes complex ones");
  ExpectError(dft({4}), "shape_mismatch", "rank");
  ExpectError(dft({1, 0, 1}), "shape_mismatch", "the length of DFT is 0");
  ExpectError(dft({1, 1, 2}).Set("onesided", int64_t{1}).Set("inverse", int64_t{1}), "shape_mismatch",
              "the length of DFT is 0");
  for (const int64_t length : {int64_t{0}, int64_t{-3}, INT64_MIN})
    ExpectError(dft({1, 4, 2}).In(I64({}, {length})), "shape_mismatch", "length of DFT is " + std::to_string(length));
  ExpectError(dft({1, 4, 2}).In(I64({2}, {4, 4})), "shape_mismatch", "one element");
  ExpectError(dft({1, 4, 2}).In(F32({}, {4})), "shape_mismatch", "input 1");
  for (const int64_t axis : {2, -1})
    ExpectError(dft({1, 4, 2}).Absent().In(I64({}, {axis})), "invalid_argument", "is the last dim");
  for (const int64_t axis : {3, -4})
    ExpectError(dft({1, 4, 2}).Absent().In(I64({}, {axis})), "shape_mismatch", "axis " + std::to_string(axis));
  const auto stft = [](int64_t step) { return Call(TensorOp::kSTFT).In(Zeros({1, 4, 1})).In(I64({}, {step})); };
  ExpectError(stft(0), "shape_mismatch", "the step of STFT is 0");
  ExpectError(stft(-1), "shape_mismatch", "the step of STFT is -1");
  ExpectError(stft(1).Absent().In(I64({}, {0})), "shape_mismatch", "the length of a frame of STFT is 0");
  ExpectError(stft(1).In(Zeros({0})), "shape_mismatch", "the length of a frame of STFT is 0");
  ExpectError(stft(1).In(Zeros({3})).In(I64({}, {2})), "shape_mismatch", "the window and the length of a frame");
  ExpectError(Call(TensorOp::kSTFT).In(Zeros({1, 4, 2})).In(I64({}, {1})), "shape_mismatch", "takes real ones");
  ExpectError(Call(TensorOp::kSTFT).In(Zeros({4, 1})).In(I64({}, {1})), "shape_mismatch", "rank");
}

TEST(Rejection, RegionsOutsideTheBatch) {
  const auto boxes = [](int64_t batch, float high) {
    return Call(TensorOp::kRoiAlign).In(Zeros({1, 1, 2, 2})).In(F32({1, 4}, {0, 0, high, high})).In(I64({1}, {batch}));
  };
  for (const int64_t batch : {int64_t{1}, int64_t{-1}, INT64_MAX})
    ExpectError(boxes(batch, 1), "out_of_range", "batch index " + std::to_string(batch) + " of box 0");
  ExpectError(boxes(0, 1e30f), "out_of_range", "box 0 of RoiAlign needs more than");
  ExpectError(boxes(0, 1e6f), "out_of_range", "samples");
  ExpectError(boxes(0, 1).Set("mode", std::string("sum")), "invalid_argument", "'sum'");
  ExpectError(boxes(0, 1).Set("coordinate_transformation_mode", std::string("half")), "invalid_argument", "'half'");
  ExpectError(boxes(0, 1).Set("sampling_ratio", int64_t{-1}), "invalid_argument", "sampling_ratio -1");
  ExpectError(boxes(0, 1).Set("output_width", int64_t{0}), "shape_mismatch", "`output_width` is 0");
  ExpectError(Call(TensorOp::kRoiAlign).In(Zeros({1, 1, 2, 2})).In(Zeros({2, 4})).In(I64({1}, {0})), "shape_mismatch",
              "the boxes and their batch indices");
  ExpectError(Call(TensorOp::kRoiAlign).In(Zeros({1, 1, 2, 2})).In(Zeros({1, 5})).In(I64({1}, {0})), "shape_mismatch",
              "four coordinates");
  ExpectError(Call(TensorOp::kRoiAlign).In(Zeros({1, 1, 0, 2})).In(Zeros({1, 4})).In(I64({1}, {0})), "shape_mismatch",
              "empty image");
  EXPECT_EQ(boxes(0, std::numeric_limits<float>::quiet_NaN()).Error(), "ok");
}

TEST(Rejection, RegionsThatMaxRoiPoolCannotTake) {
  const auto pooled = [](std::vector<int64_t> shape, float batch, const Dims& x = {1, 1, 2, 2}) {
    return Call(TensorOp::kMaxRoiPool).In(Zeros(x)).In(F32({1, 5}, {batch, 0, 0, 1, 1})).Set("pooled_shape", shape);
  };
  for (const float batch : {1.0f, -1.0f, 1e30f, std::numeric_limits<float>::quiet_NaN()})
    ExpectError(pooled({1, 1}, batch), "out_of_range", "of region 0 of MaxRoiPool is outside a batch of 1");
  ExpectError(pooled({1}, 0), "invalid_argument", "`pooled_shape` has 1 entries");
  ExpectError(pooled({1, 0}, 0), "shape_mismatch", "the width in `pooled_shape` is 0");
  ExpectError(Call(TensorOp::kMaxRoiPool)
                  .In(Zeros({1, 1, 2, 2}))
                  .In(Zeros({1, 4}))
                  .Set("pooled_shape", std::vector<int64_t>{1, 1}),
              "shape_mismatch", "dim 1 of the regions");
  EXPECT_EQ(pooled({1, 1}, 0, {1, 1, 0, 2}).Error(), "ok");
}

TEST(Rejection, ADepthwiseWeightHasAPlanePerChannel) {
  const auto conv = [](const Dims& x, const Dims& weight) {
    return Call(TensorOp::kConv).In(Zeros(x)).In(Zeros(weight)).Set("depthwise", int64_t{1});
  };
  ExpectError(conv({1, 2, 3}, {3, 1, 2}), "shape_mismatch", "the channels of the input and of a depthwise weight");
  ExpectError(conv({1, 2, 3}, {2, 2, 2}), "shape_mismatch", "dim 1 of a depthwise weight");
  ExpectError(conv({1, 2, 3}, {2, 1, 2}).Set("group", int64_t{2}), "invalid_argument", "one of the two");
}

TEST(Rejection, SamplingAndFolding) {
  ExpectError(Call(TensorOp::kGridSample).In(Zeros({1, 1, 2, 2})).In(Zeros({1, 2, 2, 3})), "shape_mismatch",
              "the last dim of the grid");
  ExpectError(Call(TensorOp::kGridSample).In(Zeros({1, 1, 2, 0})).In(Zeros({1, 1, 1, 2})), "shape_mismatch", "empty");
  ExpectError(Call(TensorOp::kGridSample).In(Zeros({1, 1, 2})).In(Zeros({1, 1, 1})).Set("mode", std::string("area")),
              "invalid_argument", "'area'");
  ExpectError(Call(TensorOp::kAffineGrid).In(Zeros({1, 2, 3})).In(I64({5}, {1, 1, 2, 2, 2})), "shape_mismatch",
              "dim 1 of theta");
  ExpectError(Call(TensorOp::kAffineGrid).In(Zeros({1, 2, 3})).In(I64({4}, {1, 1, 2, -2})), "shape_mismatch",
              "negative");
  ExpectError(Call(TensorOp::kDet).In(Zeros({2, 3})), "shape_mismatch", "last two dims");
  ExpectError(Call(TensorOp::kBitCast).In(Zeros({2})).Set("to", int64_t{7}), "invalid_argument", "width");
  ExpectError(Call(TensorOp::kCol2Im).In(Zeros({1, 4, 3})).In(I64({2}, {3, 3})).In(I64({2}, {2, 2})), "shape_mismatch",
              "positions of the blocks");
  ExpectError(Call(TensorOp::kCol2Im).In(Zeros({1, 5, 4})).In(I64({2}, {3, 3})).In(I64({2}, {2, 2})), "shape_mismatch",
              "multiple of the block's size");
  ExpectError(Call(TensorOp::kDeformConv).In(Zeros({1, 1, 3, 3})).In(Zeros({1, 1, 2, 2})).In(Zeros({1, 7, 2, 2})),
              "shape_mismatch", "channels of the offsets");
  ExpectError(Call(TensorOp::kDeformConv)
                  .In(Zeros({1, 1, 3, 3}))
                  .In(Zeros({1, 1, 2, 2}))
                  .In(Zeros({1, 16, 2, 2}))
                  .Set("offset_group", int64_t{2}),
              "invalid_argument", "offset_group");
}

TEST(Rejection, WritesOutsideTheirTarget) {
  const std::vector<int64_t> kernel = {2};
  for (const int64_t index : {int64_t{-1}, int64_t{4}, INT64_MAX}) {
    ExpectError(Call(TensorOp::kMaxUnpool)
                    .In(Zeros({1, 1, 2}))
                    .In(I64({1, 1, 2}, {0, index}))
                    .Set("kernel_shape", kernel)
                    .Set("strides", kernel),
                "out_of_range", "index " + std::to_string(index) + " of MaxUnpool");
  }
  ExpectError(Call(TensorOp::kMaxUnpool)
                  .In(Zeros({1, 1, 2}))
                  .In(I64({1, 1, 2}, {0, 3}))
                  .In(I64({3}, {1, 1, 3}))
                  .Set("kernel_shape", kernel)
                  .Set("strides", kernel),
              "out_of_range", "index 3 of MaxUnpool");
  ExpectError(Call(TensorOp::kTensorScatter).In(Zeros({2, 3, 1})).In(Zeros({2, 2, 1})).In(I64({2}, {0, 2})),
              "out_of_range", "write index 2 of batch entry 1");
  ExpectError(Call(TensorOp::kTensorScatter).In(Zeros({2, 3, 1})).In(Zeros({2, 2, 1})).In(I64({2}, {0, -1})),
              "out_of_range", "write index -1");
  ExpectError(Call(TensorOp::kTensorScatter).In(Zeros({1, 3, 1})).In(Zeros({1, 4, 1})), "shape_mismatch",
              "4 entries along axis 1");
}

TEST(Rejection, FeaturesOfSignalsAndTexts) {
  const auto mel = [](int64_t bins, int64_t length, int64_t rate, float high) {
    return Call(TensorOp::kMelWeightMatrix)
        .In(I64({}, {bins}))
        .In(I64({}, {length}))
        .In(I64({}, {rate}))
        .In(F32({}, {0}))
        .In(F32({}, {high}));
  };
  ExpectError(mel(4, 16, 0, 4000), "invalid_argument", "sample rate");
  ExpectError(mel(4, 16, 8000, 1e9), "out_of_range", "edges");
  ExpectError(mel(-4, 16, 8000, 4000), "shape_mismatch", "number of mel bins is negative");
  const auto grams = [](std::vector<int64_t> counts, std::vector<int64_t> indexes) {
    return Call(TensorOp::kTfIdfVectorizer)
        .In(I64({3}, {1, 2, 3}))
        .Set("pool_int64s", std::vector<int64_t>{1, 2, 3})
        .Set("ngram_counts", std::move(counts))
        .Set("ngram_indexes", std::move(indexes));
  };
  ExpectError(grams({0, 1}, {0}), "invalid_argument", "fewer entries");
  ExpectError(grams({0, 2}, {0, 1, 2}), "invalid_argument", "does not divide");
  ExpectError(grams({5}, {0, 1, 2}), "invalid_argument", "does not divide");
  ExpectError(grams({0}, {0, -1, 2}), "invalid_argument", "ngram_indexes");
}

}  // namespace
}  // namespace kiln::testing

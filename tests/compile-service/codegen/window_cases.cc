// Random windows: depthwise convolution and pooling over random geometries.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/compile-service/codegen/spec_cases.h"

namespace kiln::testing {
namespace {

using ir::Access;
using ir::ScalarOp;
using ir::SpecInt;
using ir::WindowSpec;

// Bias per channel and relu, or a plain store; channels-last or channels-first output.
void SetEpilogue(SpecBuilder& builder, WindowSpec& spec, int64_t images, int64_t channels,
                 const SpecBuilder::Image& image) {
  const int64_t pixels = image.out_height * image.out_width;
  Access out{builder.RandomBuffer(images * pixels * channels), DType::kF32, {}};
  const bool channels_last = Pick(builder.random(), 0, 3) > 0 || pixels < 2;
  out.strides = {builder.Size(pixels * channels)};
  if (channels_last) {
    out.strides.insert(out.strides.end(),
                       {builder.Size(image.out_width * channels), builder.Size(channels), SpecInt::Const(1)});
  } else {
    out.strides.insert(out.strides.end(), {builder.Size(image.out_width), builder.Size(1), builder.Size(pixels)});
  }
  const SpecInt zero = SpecInt::Const(0);
  spec.accesses = {out};
  spec.epilogue = {Node(ScalarOp::kAccumulator)};
  spec.stores = {{0, 0}};
  if (builder.Coin()) return;
  spec.accesses.push_back({builder.RandomBuffer(channels), DType::kF32, {zero, zero, zero, SpecInt::Const(1)}});
  spec.epilogue.insert(spec.epilogue.end(), {Node(ScalarOp::kLoad, -1, -1, 1), Node(ScalarOp::kAdd, 0, 1),
                                             Node(ScalarOp::kConstant), Node(ScalarOp::kMax, 2, 3)});
  spec.stores = {{0, 4}};
}

}  // namespace

SpecCase RandomWindow(std::mt19937_64& random, Target target) {
  SpecBuilder builder(random, target);
  WindowSpec spec;
  const int64_t images = Pick(random, 1, 2);
  const int64_t channels = std::max<int64_t>(1, Pick(random, 0, 3) * builder.lanes() + Pick(random, -1, 1));
  SpecBuilder::Image image;
  spec.geometry = builder.Geometry(channels, &image);
  spec.images = builder.Size(images);
  spec.channels = builder.Size(channels);
  spec.input.storage = Pick(random, 0, 5) == 0 ? DType::kF16 : DType::kF32;
  std::vector<float> input = RandomValues(random, images * image.in_height * image.in_width * channels);
  std::string name;
  switch (Pick(random, 0, 3)) {
    case 0:
    case 1: {
      name = "depthwise";
      const int64_t taps = int64_t{spec.geometry.kernel_h} * spec.geometry.kernel_w;
      spec.weights =
          Access{builder.RandomBuffer(taps * channels), DType::kF32, {builder.Size(channels), SpecInt::Const(1)}};
      break;
    }
    case 2:
      name = "maximum";
      spec.combine = ir::Combine::kMax;
      for (float& value : input)
        if (Pick(random, 0, 40) == 0) value = std::numeric_limits<float>::quiet_NaN();
      break;
    case 3:
      name = "average";
      spec.average = true;
      spec.count_include_pad = builder.Coin();
      break;
  }
  spec.input.pointer = builder.Buffer(spec.input.storage, std::move(input));
  SetEpilogue(builder, spec, images, channels, image);
  return builder.Finish(spec, name);
}

}  // namespace kiln::testing

// RoiAlign.
#include <algorithm>
#include <cmath>

#include "common/ops/kernels/kernel.h"
#include "common/ops/kernels/table.h"

namespace kiln::kernels {
namespace {

// Samples of one bin, and positions of one axis of a box; a box that needs more is no box of an image.
constexpr int64_t kSamplesMax = 1 << 24;

struct Rules {
  int64_t sampling_ratio;
  double scale;
  bool half_pixel, max;
};

Result<Rules> ReadRules(const Attributes& attributes) {
  const std::string_view mode = attributes.Text("mode", "avg");
  const std::string_view transform = attributes.Text("coordinate_transformation_mode", "half_pixel");
  const int64_t ratio = attributes.Int("sampling_ratio", 0);
  if (mode != "avg" && mode != "max")
    return Fail(ErrorCode::kInvalidArgument, "mode '" + std::string(mode) + "' of RoiAlign is not avg or max");
  if (transform != "half_pixel" && transform != "output_half_pixel") {
    return Fail(ErrorCode::kInvalidArgument, "coordinate_transformation_mode '" + std::string(transform) +
                                                 "' of RoiAlign is not half_pixel or output_half_pixel");
  }
  if (ratio < 0 || ratio > kSamplesMax) {
    return Fail(ErrorCode::kInvalidArgument,
                "sampling_ratio " + std::to_string(ratio) + " of RoiAlign is not in 0.." + std::to_string(kSamplesMax));
  }
  return Rules{.sampling_ratio = ratio,
               .scale = attributes.Float("spatial_scale", 1),
               .half_pixel = transform == "half_pixel",
               .max = mode == "max"};
}

// The samples of one axis of a box: `count` per bin, evenly.
struct Samples {
  double start, bin;
  int64_t count;
};

Samples SamplesOf(const Rules& rules, double low, double high, int64_t bins) {
  const double offset = rules.half_pixel ? 0.5 : 0;
  const double start = low * rules.scale - offset;
  double size = high * rules.scale - offset - start;
  if (!rules.half_pixel) size = std::max(size, 1.0);
  const double bin = size / static_cast<double>(bins);
  const int64_t adaptive = std::max<int64_t>(Convert<int64_t>(std::ceil(bin)), 0);
  return {start, bin, rules.sampling_ratio > 0 ? rules.sampling_ratio : adaptive};
}

// The two pixels around a position and their weights; outside the image both weigh nothing.
struct Taps {
  int64_t low, high;
  double low_weight, high_weight;
};

Taps TapsOf(double position, int64_t size) {
  if (!(position >= -1 && position <= static_cast<double>(size))) return {};
  position = std::max(position, 0.0);
  const int64_t low = std::min(static_cast<int64_t>(position), size - 1);
  const double high_weight = low == size - 1 ? 0 : position - static_cast<double>(low);
  return {low, std::min(low + 1, size - 1), 1 - high_weight, high_weight};
}

void FillTaps(const Samples& samples, int64_t bins, int64_t size, Taps* taps) {
  for (int64_t b = 0; b < bins; ++b) {
    const double start = samples.start + static_cast<double>(b) * samples.bin;
    for (int64_t i = 0; i < samples.count; ++i)
      *taps++ = TapsOf(start + (static_cast<double>(i) + 0.5) * samples.bin / static_cast<double>(samples.count), size);
  }
}

// One bin of one channel. The mean is one of interpolated samples; the maximum is one of the pixels' weighted values,
// as ONNX's own definition computes it.
template <class T>
double PoolBin(bool max, const T* image, int64_t width, std::span<const Taps> rows, std::span<const Taps> columns) {
  if (rows.empty() || columns.empty()) return 0;
  double sum = 0, largest = -std::numeric_limits<double>::infinity();
  for (const Taps& y : rows) {
    const T *upper = image + y.low * width, *lower = image + y.high * width;
    for (const Taps& x : columns) {
      const double a = y.low_weight * x.low_weight * double{upper[x.low]};
      const double b = y.low_weight * x.high_weight * double{upper[x.high]};
      const double c = y.high_weight * x.low_weight * double{lower[x.low]};
      const double d = y.high_weight * x.high_weight * double{lower[x.high]};
      if (max) {
        largest = NanMax(largest, NanMax(NanMax(a, b), NanMax(c, d)));
      } else {
        sum += a + b + c + d;
      }
    }
  }
  return max ? largest : sum / static_cast<double>(rows.size() * columns.size());
}

struct RoiAlignOf {
  template <class T>
  static Status Run(KernelCall& call) {
    ASSIGN_OR_RETURN(const Rules rules, ReadRules(*call.attributes));
    const TensorRef &x = call.inputs[0], &out = call.outputs[0];
    const int64_t channels = x.dims[1], height = x.dims[2], width = x.dims[3];
    const int64_t bins_y = out.dims[2], bins_x = out.dims[3];
    if (out.elements() == 0) return {};
    if (height * width == 0) return Fail(ErrorCode::kShapeMismatch, "RoiAlign of an empty image " + x.dims.ToString());
    // Every box is checked before the first is pooled.
    int64_t positions = 0;
    for (int64_t m = 0; m < out.dims[0]; ++m) {
      ASSIGN_OR_RETURN(const Samples rows, Checked<T>(call, rules, m, 1, bins_y));
      ASSIGN_OR_RETURN(const Samples columns, Checked<T>(call, rules, m, 0, bins_x));
      if (rows.count > 0 && columns.count > kSamplesMax / rows.count) return TooManySamples(m);
      RETURN_IF_ERROR(CheckBatchIndex(call, m));
      positions = std::max(positions, rows.count * bins_y + columns.count * bins_x);
    }
    ASSIGN_OR_RETURN(Taps* const taps, Scratch<Taps>(call, positions));
    T* y = out.as<T>();
    for (int64_t m = 0; m < out.dims[0]; ++m) {
      const T* box = call.inputs[1].as<T>() + m * 4;
      const Samples columns = SamplesOf(rules, double{box[0]}, double{box[2]}, bins_x);
      const Samples rows = SamplesOf(rules, double{box[1]}, double{box[3]}, bins_y);
      Taps* const column_taps = taps + rows.count * bins_y;
      FillTaps(rows, bins_y, height, taps);
      FillTaps(columns, bins_x, width, column_taps);
      const T* image = x.as<T>() + call.inputs[2].as<int64_t>()[m] * channels * height * width;
      for (int64_t c = 0; c < channels; ++c, image += height * width) {
        for (int64_t bin = 0; bin < bins_y * bins_x; ++bin) {
          const Taps* row = taps + bin / bins_x * rows.count;
          const Taps* column = column_taps + bin % bins_x * columns.count;
          *y++ = static_cast<T>(PoolBin(rules.max, image, width, {row, static_cast<size_t>(rows.count)},
                                        {column, static_cast<size_t>(columns.count)}));
        }
      }
    }
    return {};
  }

  // Samples of one axis of box m, whose edges are coordinates `first` and `first` + 2 of x1, y1, x2, y2.
  template <class T>
  static Result<Samples> Checked(const KernelCall& call, const Rules& rules, int64_t m, int64_t first, int64_t bins) {
    const T* box = call.inputs[1].as<T>() + m * 4;
    const Samples samples = SamplesOf(rules, double{box[first]}, double{box[first + 2]}, bins);
    if (samples.count > kSamplesMax / bins) return TooManySamples(m);
    return samples;
  }

  static std::unexpected<Error> TooManySamples(int64_t m) {
    return Fail(ErrorCode::kOutOfRange, "box " + std::to_string(m) + " of RoiAlign needs more than " +
                                            std::to_string(kSamplesMax) +
                                            " samples; set sampling_ratio or check the boxes");
  }

  static Status CheckBatchIndex(const KernelCall& call, int64_t m) {
    const int64_t batch = call.inputs[2].as<int64_t>()[m];
    if (batch >= 0 && batch < call.inputs[0].dims[0]) return {};
    return Fail(ErrorCode::kOutOfRange, "batch index " + std::to_string(batch) + " of box " + std::to_string(m) +
                                            " of RoiAlign is outside a batch of " +
                                            std::to_string(call.inputs[0].dims[0]));
  }
};

}  // namespace

ReferenceKernel RoiAlign(DType dtype) {
  return {FloatKernel<RoiAlignOf>(dtype), false};
}

}  // namespace kiln::kernels

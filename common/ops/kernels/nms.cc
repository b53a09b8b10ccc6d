// NonMaxSuppression.
#include <algorithm>
#include <numeric>

#include "common/ops/kernels/kernel.h"
#include "common/ops/kernels/table.h"
#include "common/ops/list.h"

namespace kiln::kernels {
namespace {

struct Box {
  float top, left, bottom, right;

  float Area() const { return (bottom - top) * (right - left); }
};

// Corners in either order, or centre and size.
Box ReadBox(const float* values, bool center) {
  if (center) {
    const float half_width = values[2] / 2;
    const float half_height = values[3] / 2;
    return {values[1] - half_height, values[0] - half_width, values[1] + half_height, values[0] + half_width};
  }
  return {std::min(values[0], values[2]), std::min(values[1], values[3]), std::max(values[0], values[2]),
          std::max(values[1], values[3])};
}

bool Overlaps(const Box& a, const Box& b, float threshold) {
  const float height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  const float width = std::min(a.right, b.right) - std::max(a.left, b.left);
  if (height <= 0 || width <= 0) return false;
  const float common = height * width;
  const float all = a.Area() + b.Area() - common;
  return all > 0 && common / all > threshold;
}

Status RunNonMaxSuppression(KernelCall& call) {
  const TensorRef& boxes = call.inputs[0];
  const TensorRef& scores = call.inputs[1];
  const int64_t per_class = call.Has(2) && call.inputs[2].elements() > 0 ? ReadInt(call.inputs[2]) : 0;
  const float iou = call.Has(3) && call.inputs[3].elements() > 0 ? *call.inputs[3].as<float>() : 0.0f;
  const bool has_score = call.Has(4) && call.inputs[4].elements() > 0;
  const float lowest = has_score ? *call.inputs[4].as<float>() : 0.0f;
  const bool center = call.attributes->Int("center_point_box", 0) != 0;
  const int64_t batches = scores.dims[0];
  const int64_t classes = scores.dims[1];
  const int64_t count = scores.dims[2];
  List<int64_t> selected;  // triples
  List<int64_t> order;
  List<Box> kept;
  const int64_t rows = count > 0 && per_class > 0 ? batches * classes : 0;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t batch = row / classes;
    const float* score = scores.as<float>() + row * count;
    const float* box = boxes.as<float>() + batch * count * 4;
    order.clear();
    for (int64_t i = 0; i < count; ++i) {
      if (std::isnan(score[i])) continue;
      if (!has_score || score[i] > lowest) order.push_back(i);
    }
    // The lower index first among equal scores.
    std::sort(order.begin(), order.end(),
              [score](int64_t a, int64_t b) { return score[a] != score[b] ? score[a] > score[b] : a < b; });
    kept.clear();
    for (const int64_t i : order) {
      if (static_cast<int64_t>(kept.size()) >= per_class) break;
      const Box candidate = ReadBox(box + i * 4, center);
      const bool hidden =
          std::any_of(kept.begin(), kept.end(), [&](const Box& other) { return Overlaps(candidate, other, iou); });
      if (hidden) continue;
      kept.push_back(candidate);
      selected.insert(selected.end(), {batch, row % classes, i});
    }
  }
  const int64_t found = static_cast<int64_t>(selected.size()) / 3;
  RETURN_IF_ERROR(AllocateOutput(call, 0, DType::kI64, Dims{found, 3}));
  std::copy(selected.begin(), selected.end(), call.outputs[0].as<int64_t>());
  return {};
}

}  // namespace

ReferenceKernel NonMaxSuppression(DType dtype) {
  return {dtype == DType::kF32 ? &RunNonMaxSuppression : nullptr, false};
}

}  // namespace kiln::kernels

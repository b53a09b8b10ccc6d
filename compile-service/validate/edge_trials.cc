#include "compile-service/validate/edge_trials.h"

#include <algorithm>

namespace kiln {
namespace {

using ir::SpecInt;

constexpr int64_t kRowStep = 8;  // of loops that code may unroll
constexpr int64_t kNarrow =
    5;  // columns: more than one tile of Winograd's form, and a few pixels are more than one line

// Which arguments are extents that may shrink on their own, and where their tiles end.
class ExtentFinder {
 public:
  ExtentFinder(const ir::KernelSpec& spec, int lanes) : lanes_(lanes), uses_(static_cast<size_t>(spec.dims)) {
    steps_.resize(uses_.size(), 0);
    extent_uses_.resize(uses_.size(), 0);
    image_uses_.resize(uses_.size(), 0);
    std::visit([this](const auto& kernel) { Visit(kernel); }, spec.kernel);
  }

  // 0: the argument is no extent, or something else besides.
  int64_t StepOf(size_t argument) const { return extent_uses_[argument] == uses_[argument] ? steps_[argument] : 0; }
  // Whether it is a size of images and nothing else: the number of pixels does not follow.
  bool IsImageSize(size_t argument) const { return uses_[argument] > 0 && image_uses_[argument] == uses_[argument]; }

 private:
  void Use(const SpecInt& value) {
    if (value.is_argument) ++uses_[static_cast<size_t>(value.value)];
  }
  void Extent(const SpecInt& value, int64_t step) {
    Use(value);
    if (!value.is_argument) return;
    ++extent_uses_[static_cast<size_t>(value.value)];
    steps_[static_cast<size_t>(value.value)] = step;
  }
  void Extents(const std::vector<SpecInt>& values) {
    for (const SpecInt& value : values) Extent(value, kRowStep);
  }
  void Strides(const ir::Access& access) {
    for (const SpecInt& stride : access.strides) Use(stride);
  }
  void Body(const std::vector<ir::Access>& accesses, const ir::ScalarProgram& program) {
    for (const ir::Access& access : accesses) Strides(access);
    for (const ir::ScalarNode& node : program)
      if (node.op == ir::ScalarOp::kArgument) Use(SpecInt::Argument(node.index));
  }
  void Geometry(const ir::WindowGeometry& g) {
    for (const SpecInt* value : {&g.in_height, &g.in_width, &g.image_stride, &g.row_stride, &g.column_stride})
      Use(*value);
  }

  void Visit(const ir::LoopNestSpec& nest) {
    Extents(nest.outer);
    Extents(nest.reduce);
    Extent(nest.inner, lanes_);
    Body(nest.accesses, nest.body);
  }
  void Visit(const ir::ContractionSpec& product) {
    Extents(product.batch);
    Extent(product.m, product.tile.mr);
    Extent(product.n, int64_t{product.tile.nv} * lanes_);
    product.conv ? Use(product.k) : Extent(product.k, lanes_);
    if (product.conv) {  // m is images times rows times columns: it alone shrinks
      const ir::WindowGeometry& g = *product.conv;
      Geometry(g);
      Use(g.out_height);
      Use(g.out_width);
      for (const SpecInt* size : {&g.in_height, &g.in_width, &g.out_height, &g.out_width})
        if (size->is_argument) ++image_uses_[static_cast<size_t>(size->value)];
    }
    Strides(product.a);
    Strides(product.b);
    Body(product.accesses, product.epilogue);
  }
  void Visit(const ir::WindowSpec& window) {
    Extent(window.images, kRowStep);
    Extent(window.channels, lanes_);
    Geometry(window.geometry);
    Extent(window.geometry.out_height, kRowStep);
    Extent(window.geometry.out_width, kRowStep);
    if (window.weights) Strides(*window.weights);
    Body(window.accesses, window.epilogue);
  }
  void Visit(const ir::RecurrentSpec& recurrent) {
    Extent(recurrent.time, kRowStep);
    Extent(recurrent.rows, recurrent.tile_rows);
    Body(recurrent.accesses, {});
    for (const auto* stages : {&recurrent.before, &recurrent.steps, &recurrent.after})
      for (const ir::RecurrentStage& stage : *stages) Body({}, stage.body);
  }
  void Visit(const ir::AttentionSpec& attention) {
    Extents(attention.batch);
    Extent(attention.m, int64_t{attention.tile.nv} * lanes_);
    Extent(attention.n, attention.tile.mr);
    for (const ir::Access* access : {&attention.q, &attention.k, &attention.v, &attention.out}) Strides(*access);
    Body(attention.accesses, attention.scores);
  }

  const int lanes_;
  std::vector<int> uses_, extent_uses_, image_uses_;  // per argument
  std::vector<int64_t> steps_;
};

// A narrow image of few pixels, which then lie on several lines, for code that works on several at a time; what is read
// beyond its sides is 0 anyway. Nothing where sizes are constants or strides.
std::vector<int64_t> NarrowImage(const ir::KernelSpec& spec, const ExtentFinder& extents,
                                 std::span<const int64_t> dims) {
  const auto* product = std::get_if<ir::ContractionSpec>(&spec.kernel);
  if (product == nullptr || !product->winograd || !product->m.is_argument || !product->conv->out_width.is_argument)
    return {};
  const auto width = static_cast<size_t>(product->conv->out_width.value), m = static_cast<size_t>(product->m.value);
  if (!extents.IsImageSize(width) || extents.StepOf(m) == 0 || dims[width] <= kNarrow) return {};
  std::vector<int64_t> trial(dims.begin(), dims.end());
  trial[width] = kNarrow;
  const SpecInt& height = product->conv->out_height;
  const int64_t lines = height.is_argument ? trial[static_cast<size_t>(height.value)] : height.value;
  trial[m] = std::min(trial[m], kNarrow * lines);
  return trial;
}

}  // namespace

std::vector<std::vector<int64_t>> EdgeTrials(const ir::KernelSpec& spec, std::span<const int64_t> dims, int f32_lanes) {
  std::vector<std::vector<int64_t>> trials;
  if (dims.size() != static_cast<size_t>(spec.dims)) return trials;
  const ExtentFinder extents(spec, f32_lanes);
  const auto edge = [](int64_t extent, int64_t step) { return (extent - 1) / step * step; };
  const auto add = [&](auto moved) {
    std::vector<int64_t> trial(dims.begin(), dims.end());
    for (size_t i = 0; i < trial.size(); ++i)
      if (const int64_t step = extents.StepOf(i); step > 0 && trial[i] > 1)
        trial[i] = std::max<int64_t>(1, moved(trial[i], step));
    const bool known =
        std::ranges::equal(trial, dims) || std::find(trials.begin(), trials.end(), trial) != trials.end();
    if (!known) trials.push_back(std::move(trial));
  };
  if (std::vector<int64_t> narrow = NarrowImage(spec, extents, dims); !narrow.empty())
    trials.push_back(std::move(narrow));
  add([](int64_t extent, int64_t) { return extent - 1; });
  add(edge);
  add([&](int64_t extent, int64_t step) { return edge(extent, step) + 1; });
  add([](int64_t, int64_t) { return 1; });
  return trials;
}

}  // namespace kiln

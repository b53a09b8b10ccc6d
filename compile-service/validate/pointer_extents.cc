#include "compile-service/validate/pointer_extents.h"

#include <algorithm>
#include <cmath>

#include "common/base/checked_math.h"

namespace kiln {
namespace {

using ir::Access;
using ir::SpecInt;

class ExtentBuilder {
 public:
  ExtentBuilder(const ir::KernelSpec& spec, std::span<const int64_t> dims) : dims_(dims) {
    extents_.resize(static_cast<size_t>(spec.pointers));
    seen_.resize(extents_.size());
  }

  int64_t Value(SpecInt number) const {
    return number.is_argument ? dims_[static_cast<size_t>(number.value)] : number.value;
  }

  // The access is used at every point of the box `trips`.
  Status Add(const Access& access, std::span<const int64_t> trips, bool written, int64_t extra_elements = 0) {
    int64_t low = 0, high = extra_elements;
    for (size_t i = 0; i < access.strides.size() && i < trips.size(); ++i) {
      const int64_t stride = Value(access.strides[i]);
      if (stride == 0) continue;
      if (trips[i] <= 0) return {};
      const auto span = CheckedMul(trips[i] - 1, stride);
      const auto sum = span ? CheckedAdd(*span < 0 ? low : high, *span) : std::nullopt;
      if (!sum) return Fail(ErrorCode::kInvalidArgument, "an access of the kernel overflows 64-bit addressing");
      (*span < 0 ? low : high) = *sum;
    }
    return Merge(access.pointer, access.storage, low, high + 1, written);
  }

  // The elements [low, high) around the pointer are touched.
  Status Merge(int32_t pointer, DType dtype, int64_t low, int64_t high, bool written) {
    PointerExtent& extent = extents_[static_cast<size_t>(pointer)];
    if (seen_[static_cast<size_t>(pointer)] && extent.dtype != dtype)
      return Fail(ErrorCode::kInvalidArgument, "pointer " + std::to_string(pointer) + " is used under two dtypes");
    seen_[static_cast<size_t>(pointer)] = true;
    extent.dtype = dtype;
    const int64_t last = std::max(extent.elements - extent.before, high);
    extent.before = std::max(extent.before, -low);
    extent.elements = last + extent.before;
    extent.written |= written;
    return {};
  }

  Status AddAll(const std::vector<Access>& accesses, std::span<const int64_t> trips,
                const std::vector<ir::Store>& stores) {
    for (size_t i = 0; i < accesses.size(); ++i) {
      const bool written = std::any_of(stores.begin(), stores.end(),
                                       [&](const ir::Store& s) { return s.access == static_cast<int32_t>(i); });
      RETURN_IF_ERROR(Add(accesses[i], trips, written));
    }
    return {};
  }

  // The image that a window geometry reads, from the pointer on.
  int64_t ImageElements(const ir::WindowGeometry& g, int64_t images, int64_t channels) const {
    if (images <= 0 || Value(g.in_height) <= 0 || Value(g.in_width) <= 0 || channels <= 0) return 0;
    return (images - 1) * Value(g.image_stride) + (Value(g.in_height) - 1) * Value(g.row_stride) +
           (Value(g.in_width) - 1) * Value(g.column_stride) + channels;
  }

  std::vector<PointerExtent> Take() { return std::move(extents_); }
  PointerExtent& at(int32_t pointer) { return extents_[static_cast<size_t>(pointer)]; }

 private:
  std::span<const int64_t> dims_;
  std::vector<PointerExtent> extents_;
  std::vector<bool> seen_;
};

SpecInt FixedNumber(const ir::LoopNestSpec& spec, int32_t operand) {
  const ir::ScalarNode& node = spec.body[static_cast<size_t>(operand)];
  return node.op == ir::ScalarOp::kArgument ? SpecInt::Argument(node.index) : SpecInt::Const(node.integer);
}

// Where the positions of a LoadAt are read: what its first operand is made of by sums, products and choices. What is
// added to a number that is read, so that it counts from the front, is how many there are to choose from.
void MarkPositions(const ir::LoopNestSpec& spec, int32_t position, int64_t entries, ExtentBuilder& builder) {
  const auto mark = [&](const ir::ScalarNode& load, int64_t among) {
    int64_t& marked = builder.at(spec.accesses[static_cast<size_t>(load.index)].pointer).entries;
    if (among > 0) marked = marked > 0 ? std::min(marked, among) : among;
  };
  std::vector<bool> seen(spec.body.size());
  std::vector<int32_t> nodes{position};
  while (!nodes.empty()) {
    const auto at = static_cast<size_t>(nodes.back());
    nodes.pop_back();
    if (seen[at]) continue;
    seen[at] = true;
    const ir::ScalarNode& node = spec.body[at];
    if (node.op == ir::ScalarOp::kLoad) mark(node, entries);
    if (node.op == ir::ScalarOp::kAdd && spec.body[static_cast<size_t>(node.a)].op == ir::ScalarOp::kLoad) {
      const ir::ScalarOp added = spec.body[static_cast<size_t>(node.b)].op;
      if (added == ir::ScalarOp::kArgument || added == ir::ScalarOp::kConstant)
        mark(spec.body[static_cast<size_t>(node.a)], builder.Value(FixedNumber(spec, node.b)));
    }
    const bool passes = node.op == ir::ScalarOp::kAdd || node.op == ir::ScalarOp::kMul ||
                        node.op == ir::ScalarOp::kSelect || node.op == ir::ScalarOp::kConvert ||
                        node.op == ir::ScalarOp::kMin || node.op == ir::ScalarOp::kMax;
    for (int32_t operand : {node.a, node.b, node.c})
      if (passes && operand >= 0) nodes.push_back(operand);
  }
}

// A LoadAt reaches as far as its positions, beside the loops.
Status AddLoadsAt(const ir::LoopNestSpec& spec, std::span<const int64_t> trips, ExtentBuilder& builder) {
  for (const ir::ScalarNode& node : spec.body) {
    if (node.op != ir::ScalarOp::kLoadAt) continue;
    Access access = spec.accesses[static_cast<size_t>(node.index)];
    std::vector<int64_t> box(trips.begin(), trips.end());
    access.strides.push_back(FixedNumber(spec, node.c));
    box.push_back(std::max<int64_t>(1, builder.Value(FixedNumber(spec, node.b))));
    RETURN_IF_ERROR(builder.Add(access, box, false));  // a scatter marks what it writes as a store
    MarkPositions(spec, node.a, box.back(), builder);
  }
  return {};
}

Status AddLoopNest(const ir::LoopNestSpec& spec, ExtentBuilder& builder) {
  std::vector<int64_t> trips;
  for (SpecInt extent : spec.outer) trips.push_back(builder.Value(extent));
  for (SpecInt extent : spec.reduce) trips.push_back(builder.Value(extent));
  trips.push_back(builder.Value(spec.inner));
  const size_t outer = spec.outer.size();
  // A store's domain leaves coordinates at 0; loads may be evaluated anywhere.
  std::vector<bool> is_store(spec.accesses.size());
  for (const ir::Stage& stage : spec.stages)
    for (const ir::Store& store : stage.stores) {
      is_store[static_cast<size_t>(store.access)] = true;
      std::vector<int64_t> box = trips;
      if (stage.domain != ir::Stage::Domain::kFull)
        std::fill(box.begin() + static_cast<std::ptrdiff_t>(outer), box.end() - 1, 1);
      if (stage.domain == ir::Stage::Domain::kRow) box.back() = 1;
      RETURN_IF_ERROR(builder.Add(spec.accesses[static_cast<size_t>(store.access)], box, true));
    }
  for (size_t i = 0; i < spec.accesses.size(); ++i)
    if (!is_store[i]) RETURN_IF_ERROR(builder.Add(spec.accesses[i], trips, false));
  return AddLoadsAt(spec, trips, builder);
}

Status AddContraction(const ir::ContractionSpec& spec, ExtentBuilder& builder, int f32_lanes) {
  std::vector<int64_t> batch;
  for (SpecInt extent : spec.batch) batch.push_back(builder.Value(extent));
  const int64_t m = builder.Value(spec.m), n = builder.Value(spec.n), k = builder.Value(spec.k);
  const auto with = [&](std::initializer_list<int64_t> more) {
    std::vector<int64_t> trips = batch;
    trips.insert(trips.end(), more);
    return trips;
  };
  if (spec.conv) {
    const ir::WindowGeometry& g = *spec.conv;
    const int64_t pixels = builder.Value(g.out_height) * builder.Value(g.out_width);
    const int64_t channels = k / (g.kernel_h * g.kernel_w);
    const int64_t elements = builder.ImageElements(g, pixels == 0 ? 0 : (m + pixels - 1) / pixels, channels);
    if (elements > 0) RETURN_IF_ERROR(builder.Add(spec.a, batch, false, elements - 1));
    if (spec.zeros >= 0) {
      RETURN_IF_ERROR(builder.Merge(spec.zeros, spec.a.storage, 0, channels, false));
      builder.at(spec.zeros).zeros = IsFloat(spec.a.storage);
    }
  } else {
    RETURN_IF_ERROR(builder.Add(spec.a, with({m, k}), false));
  }
  if (spec.b_layout == ir::BLayout::kPanels) {
    const int64_t width = int64_t{spec.tile.nv} * f32_lanes;
    const int64_t elements = (n + width - 1) / width * width * ir::PanelDepth(spec, k);
    if (elements > 0) RETURN_IF_ERROR(builder.Add(spec.b, batch, false, elements - 1));
  } else if (n > 0 && k > 0) {
    const bool transposed = spec.b_layout == ir::BLayout::kTransposed;
    RETURN_IF_ERROR(builder.Add(spec.b, with({transposed ? n : k}), false, (transposed ? k : n) - 1));
  }
  return builder.AddAll(spec.accesses, with({m, n}), spec.stores);
}

Status AddAttention(const ir::AttentionSpec& spec, ExtentBuilder& builder) {
  const int64_t m = builder.Value(spec.m), n = builder.Value(spec.n);
  const auto trips = [&](int64_t row, int64_t column) {
    std::vector<int64_t> result;
    for (SpecInt extent : spec.batch) result.push_back(builder.Value(extent));
    result.insert(result.end(), {row, column});
    return result;
  };
  RETURN_IF_ERROR(builder.Add(spec.q, trips(m, spec.key_elements), false));
  RETURN_IF_ERROR(builder.Add(spec.k, trips(n, spec.key_elements), false));
  RETURN_IF_ERROR(builder.Add(spec.v, trips(n, spec.value_elements), false));
  RETURN_IF_ERROR(builder.Add(spec.out, trips(m, spec.value_elements), true));
  return builder.AddAll(spec.accesses, trips(n, m), {});
}

Status AddWindow(const ir::WindowSpec& spec, ExtentBuilder& builder) {
  const ir::WindowGeometry& g = spec.geometry;
  const int64_t images = builder.Value(spec.images), channels = builder.Value(spec.channels);
  RETURN_IF_ERROR(
      builder.Merge(spec.input.pointer, spec.input.storage, 0, builder.ImageElements(g, images, channels), false));
  if (spec.weights) {
    const int64_t trips[] = {int64_t{g.kernel_h} * g.kernel_w, channels};
    RETURN_IF_ERROR(builder.Add(*spec.weights, trips, false));
  }
  const int64_t trips[] = {images, builder.Value(g.out_height), builder.Value(g.out_width), channels};
  return builder.AddAll(spec.accesses, trips, spec.stores);
}

Status AddRecurrent(const ir::RecurrentSpec& spec, ExtentBuilder& builder, int f32_lanes) {
  const int64_t rows = builder.Value(spec.rows);
  const int64_t trips[] = {builder.Value(spec.time), rows, spec.units};
  if (spec.lengths >= 0) RETURN_IF_ERROR(builder.Merge(spec.lengths, DType::kI32, 0, rows, false));
  std::vector<bool> written(spec.accesses.size());
  for (const auto* stages : {&spec.before, &spec.steps, &spec.after}) {
    for (const ir::RecurrentStage& stage : *stages) {
      for (const ir::Store& store : stage.stores) written[static_cast<size_t>(store.access)] = true;
      if (stage.gates == 0) continue;
      const int64_t width = int64_t{stage.vectors} * f32_lanes;
      const int64_t blocks = (spec.units + width - 1) / width;
      RETURN_IF_ERROR(builder.Merge(stage.panels, DType::kF32, 0, blocks * spec.units * stage.gates * width, false));
      builder.at(stage.panels).size = 1 / std::sqrt(static_cast<double>(spec.units));
    }
  }
  for (size_t i = 0; i < spec.accesses.size(); ++i) RETURN_IF_ERROR(builder.Add(spec.accesses[i], trips, written[i]));
  return {};
}

}  // namespace

Result<std::vector<PointerExtent>> PointerExtents(const ir::KernelSpec& spec, std::span<const int64_t> dims,
                                                  int f32_lanes) {
  if (dims.size() != static_cast<size_t>(spec.dims))
    return Fail(ErrorCode::kInvalidArgument, "the kernel takes " + std::to_string(spec.dims) + " dims, " +
                                                 std::to_string(dims.size()) + " were given");
  ExtentBuilder builder(spec, dims);
  if (const auto* nest = std::get_if<ir::LoopNestSpec>(&spec.kernel)) RETURN_IF_ERROR(AddLoopNest(*nest, builder));
  if (const auto* product = std::get_if<ir::ContractionSpec>(&spec.kernel))
    RETURN_IF_ERROR(AddContraction(*product, builder, f32_lanes));
  if (const auto* window = std::get_if<ir::WindowSpec>(&spec.kernel)) RETURN_IF_ERROR(AddWindow(*window, builder));
  if (const auto* recurrent = std::get_if<ir::RecurrentSpec>(&spec.kernel))
    RETURN_IF_ERROR(AddRecurrent(*recurrent, builder, f32_lanes));
  if (const auto* attention = std::get_if<ir::AttentionSpec>(&spec.kernel))
    RETURN_IF_ERROR(AddAttention(*attention, builder));
  return builder.Take();
}

int64_t UnitCost(const ir::KernelSpec& spec, std::span<const int64_t> dims, int f32_lanes) {
  ExtentBuilder builder(spec, dims);
  if (const auto* nest = std::get_if<ir::LoopNestSpec>(&spec.kernel)) {
    int64_t points = builder.Value(nest->inner);
    for (SpecInt extent : nest->reduce) points *= builder.Value(extent);
    if (nest->outer.empty() && nest->reduce.empty() && !nest->reduce_inner) points = 1;
    return std::max<int64_t>(1, points * static_cast<int64_t>(nest->body.size() * nest->stages.size()));
  }
  if (const auto* product = std::get_if<ir::ContractionSpec>(&spec.kernel)) {
    const int64_t width = std::min<int64_t>(builder.Value(product->n), int64_t{product->tile.nv} * f32_lanes);
    return std::max<int64_t>(
        1, product->tile.mr * width * (builder.Value(product->k) + static_cast<int64_t>(product->epilogue.size())));
  }
  if (const auto* recurrent = std::get_if<ir::RecurrentSpec>(&spec.kernel)) {
    int64_t unit = 1;
    for (const ir::RecurrentStage& stage : recurrent->steps)
      unit += int64_t{stage.gates} * recurrent->units + static_cast<int64_t>(stage.body.size()) * 4;
    return std::max<int64_t>(1, builder.Value(recurrent->time) * recurrent->tile_rows * recurrent->units * unit);
  }
  if (const auto* attention = std::get_if<ir::AttentionSpec>(&spec.kernel)) {
    const int64_t queries = std::min<int64_t>(builder.Value(attention->m), int64_t{attention->tile.nv} * f32_lanes);
    const int64_t per_score =
        int64_t{attention->key_elements} + attention->value_elements + static_cast<int64_t>(attention->scores.size());
    return std::max<int64_t>(1, queries * builder.Value(attention->n) * per_score);
  }
  const auto& window = std::get<ir::WindowSpec>(spec.kernel);
  const int64_t taps = int64_t{window.geometry.kernel_h} * window.geometry.kernel_w;
  return std::max<int64_t>(1, builder.Value(window.geometry.out_width) * builder.Value(window.channels) *
                                  (taps + static_cast<int64_t>(window.epilogue.size())));
}

}  // namespace kiln

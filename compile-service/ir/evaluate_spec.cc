// The naive evaluator of kernel specs: one element at a time, straight from the definitions in kernel_spec.h.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "compile-service/ir/scalar_value.h"

namespace kiln::ir {

namespace {

class Evaluator {
 public:
  Evaluator(std::span<void* const> pointers, std::span<const int64_t> dims, int lanes)
      : pointers_(pointers), dims_(dims), lanes_(lanes) {}

  void Run(const LoopNestSpec& nest, int64_t begin, int64_t end);
  void Run(const ContractionSpec& c, int64_t begin, int64_t end);
  void Run(const WindowSpec& w, int64_t begin, int64_t end);
  void Run(const RecurrentSpec& r, int64_t begin, int64_t end);
  void Run(const AttentionSpec& a, int64_t begin, int64_t end);

 private:
  // Where a program is evaluated.
  struct Point {
    const std::vector<Access>* accesses = nullptr;
    std::vector<int64_t> coordinates;
    const std::vector<Scalar>* stage_results = nullptr;
    Scalar accumulator;
    const std::vector<Scalar>* sums = nullptr;  // of a recurrent stage, instead
  };

  int64_t Value(const SpecInt& value) const {
    return value.is_argument ? dims_[static_cast<size_t>(value.value)] : value.value;
  }
  int64_t Offset(const Access& access, std::span<const int64_t> coordinates) const {
    int64_t offset = 0;
    for (size_t i = 0; i < access.strides.size(); ++i) offset += coordinates[i] * Value(access.strides[i]);
    return offset;
  }
  double Factor(const Access& access, int64_t offset) const {
    return LoadElement(access.storage, DType::kF32, pointers_[static_cast<size_t>(access.pointer)], offset).number;
  }
  // The value of `root`, and of what it needs, at one point.
  Scalar Evaluate(const ScalarProgram& program, int32_t root, const Point& point);
  Scalar Node(const ScalarProgram& program, int32_t index, const Point& point);
  Scalar Known(const ScalarProgram& program, int32_t index, const Point& point);  // each node once
  Scalar Leaf(const ScalarNode& node, const Point& point);
  void StoreAll(const ScalarProgram& program, const std::vector<Store>& stores, const Point& point);
  void RunStage(const LoopNestSpec& nest, size_t index, Point& point, std::vector<Scalar>& results);
  void StoreOrdered(const LoopNestSpec& nest, size_t index, Point& point, std::vector<Scalar>& results);
  int64_t OffsetAt(const ScalarProgram& program, const ScalarNode& place, const Point& point);
  // Calls `body` with every combination of coordinates[first..first+extents) below the extents.
  void ForAll(std::span<const int64_t> extents, size_t first, std::vector<int64_t>& coordinates,
              const std::function<void()>& body);
  void AttendOne(const AttentionSpec& a, const std::vector<int64_t>& batch, int64_t m);
  // Offset of an implicit matrix's element in the image; nullopt outside of it.
  std::optional<int64_t> ImplicitOffset(const ContractionSpec& c, int64_t base, int64_t m, int64_t k);
  // One row at one time.
  void RunStage(const RecurrentSpec& r, const RecurrentStage& stage, int64_t time, int64_t row);
  double ImplicitA(const ContractionSpec& c, int64_t base, int64_t m, int64_t k);
  int64_t ByteSum(const ContractionSpec& c, int64_t a_base, int64_t b_base, int64_t m, int64_t n);

  std::span<void* const> pointers_;
  std::span<const int64_t> dims_;
  int lanes_;
  std::vector<Scalar> values_;  // of the current evaluation, where known_ says so
  std::vector<bool> known_;
};

Scalar Evaluator::Evaluate(const ScalarProgram& program, int32_t root, const Point& point) {
  values_.resize(program.size());
  known_.assign(program.size(), false);
  return Node(program, root, point);
}

Scalar Evaluator::Known(const ScalarProgram& program, int32_t index, const Point& point) {
  const auto i = static_cast<size_t>(index);
  if (!known_[i]) {
    values_[i] = Node(program, index, point);
    known_[i] = true;
  }
  return values_[i];
}

Scalar Evaluator::Leaf(const ScalarNode& node, const Point& point) {
  const auto index = static_cast<size_t>(node.index);
  if (node.op == ScalarOp::kStageResult) return (*point.stage_results)[index];
  if (node.op == ScalarOp::kAccumulator) return point.sums ? (*point.sums)[index] : point.accumulator;
  if (node.op == ScalarOp::kCoordinate) return {0, point.coordinates[index]};
  if (node.op == ScalarOp::kArgument) return {0, dims_[index]};
  const Access& access = (*point.accesses)[index];
  return LoadElement(access.storage, node.type, pointers_[static_cast<size_t>(access.pointer)],
                     Offset(access, point.coordinates));
}

Scalar Evaluator::Node(const ScalarProgram& program, int32_t at, const Point& point) {
  const ScalarNode& node = program[static_cast<size_t>(at)];
  if (IsLeaf(node.op)) return Leaf(node, point);
  auto value = [&](int32_t operand) { return operand < 0 ? Scalar{} : Known(program, operand, point); };
  if (node.op == ScalarOp::kLoadAt) {
    const Access& access = (*point.accesses)[static_cast<size_t>(node.index)];
    return LoadElement(access.storage, node.type, pointers_[static_cast<size_t>(access.pointer)],
                       OffsetAt(program, node, point));
  }
  const int32_t last = node.c >= 0 ? node.c : node.b >= 0 ? node.b : node.a;
  const DType type = last >= 0 ? program[static_cast<size_t>(last)].type : node.type;
  return Applied(node, type, value(node.a), value(node.b), value(node.c));
}

// Where a LoadAt reads: elements behind its pointer.
int64_t Evaluator::OffsetAt(const ScalarProgram& program, const ScalarNode& place, const Point& point) {
  const auto integer = [&](int32_t operand) { return Known(program, operand, point).integer; };
  const int64_t position = std::max<int64_t>(std::min(integer(place.a), integer(place.b) - 1), 0);
  return Offset((*point.accesses)[static_cast<size_t>(place.index)], point.coordinates) + position * integer(place.c);
}

void Evaluator::StoreAll(const ScalarProgram& program, const std::vector<Store>& stores, const Point& point) {
  std::vector<Scalar> values;
  for (const Store& store : stores) values.push_back(Evaluate(program, store.node, point));
  for (size_t i = 0; i < stores.size(); ++i) {
    const Access& access = (*point.accesses)[static_cast<size_t>(stores[i].access)];
    StoreElement(access.storage, program[static_cast<size_t>(stores[i].node)].type, values[i],
                 pointers_[static_cast<size_t>(access.pointer)], Offset(access, point.coordinates));
  }
}

void Evaluator::ForAll(std::span<const int64_t> extents, size_t first, std::vector<int64_t>& coordinates,
                       const std::function<void()>& body) {
  if (extents.empty()) {
    body();
    return;
  }
  for (int64_t i = 0; i < extents[0]; ++i) {
    coordinates[first] = i;
    ForAll(extents.subspan(1), first + 1, coordinates, body);
  }
  coordinates[first] = 0;
}

// The stores of a scatter or a scan at one point.
void Evaluator::StoreOrdered(const LoopNestSpec& nest, size_t index, Point& point, std::vector<Scalar>& results) {
  const Stage& stage = nest.stages[index];
  if (stage.kind == Stage::Kind::kScan) {
    const Scalar next = Evaluate(nest.body, stage.node, point);  // of memory as it was before the stores
    StoreAll(nest.body, stage.stores, point);
    results[index] = next;
    return;
  }
  const Store& store = stage.stores.front();
  const Scalar value = Evaluate(nest.body, store.node, point);
  known_.assign(nest.body.size(), false);
  const Access& access = nest.accesses[static_cast<size_t>(store.access)];
  StoreElement(access.storage, nest.body[static_cast<size_t>(store.node)].type, value,
               pointers_[static_cast<size_t>(access.pointer)],
               OffsetAt(nest.body, nest.body[static_cast<size_t>(stage.node)], point));
}

void Evaluator::RunStage(const LoopNestSpec& nest, size_t index, Point& point, std::vector<Scalar>& results) {
  const Stage& stage = nest.stages[index];
  std::vector<int64_t> extents;
  for (const SpecInt& extent : nest.reduce) extents.push_back(Value(extent));
  if (nest.reduce_inner) extents.push_back(Value(nest.inner));
  const size_t first = nest.outer.size();
  if (stage.kind == Stage::Kind::kReduce) {
    const DType type = nest.body[static_cast<size_t>(stage.node)].type;
    Scalar total = Identity(stage.combine, type);
    ForAll(extents, first, point.coordinates,
           [&] { total = Combined(stage.combine, type, total, Evaluate(nest.body, stage.node, point)); });
    results[index] = IsFloat(type) ? Rounded(type, total.number) : total;
    return;
  }
  if (stage.kind != Stage::Kind::kStore) {
    results[index] = Identity(stage.combine, nest.body[static_cast<size_t>(stage.node)].type);
    ForAll(extents, first, point.coordinates, [&] { StoreOrdered(nest, index, point, results); });
    return;
  }
  auto store = [&] { StoreAll(nest.body, stage.stores, point); };
  switch (stage.domain) {
    case Stage::Domain::kRow:
      store();
      break;
    case Stage::Domain::kInner:
      // Without reduce_inner the caller walks the inner positions.
      if (nest.reduce_inner) {
        ForAll(std::span(extents).last(1), first + nest.reduce.size(), point.coordinates, store);
      } else {
        store();
      }
      break;
    case Stage::Domain::kFull:
      ForAll(extents, first, point.coordinates, store);
      break;
  }
}

void Evaluator::Run(const LoopNestSpec& nest, int64_t begin, int64_t end) {
  std::vector<Scalar> results(nest.stages.size());
  Point point{&nest.accesses, std::vector<int64_t>(nest.outer.size() + nest.reduce.size() + 1, 0), &results, {}};
  const bool flat = nest.outer.empty() && nest.reduce.empty() && !nest.reduce_inner;
  auto run_stages = [&] {
    for (size_t index = 0; index < nest.stages.size(); ++index) RunStage(nest, index, point, results);
  };
  if (flat) {
    for (int64_t i = begin; i < end; ++i) {
      point.coordinates.back() = i;
      run_stages();
    }
    return;
  }
  for (int64_t p = begin; p < end; ++p) {
    int64_t rest = p;
    for (size_t dim = nest.outer.size(); dim-- > 0;) {
      point.coordinates[dim] = rest % Value(nest.outer[dim]);
      rest /= Value(nest.outer[dim]);
    }
    if (nest.reduce_inner) {
      run_stages();
      continue;
    }
    for (int64_t i = 0; i < Value(nest.inner); ++i) {
      point.coordinates.back() = i;
      run_stages();
    }
  }
}

// Element of a convolution's implicit matrix.
std::optional<int64_t> Evaluator::ImplicitOffset(const ContractionSpec& c, int64_t base, int64_t m, int64_t k) {
  const WindowGeometry& g = *c.conv;
  const int64_t channels = Value(c.k) / (int64_t{g.kernel_h} * g.kernel_w);
  const int64_t out_height = Value(g.out_height), out_width = Value(g.out_width);
  const int64_t column = m % out_width, row = m / out_width % out_height, image = m / out_width / out_height;
  const int64_t tap = k / channels, channel = k % channels;
  const int64_t in_row = row * g.stride_h - g.pad_top + tap / g.kernel_w * g.dilation_h;
  const int64_t in_column = column * g.stride_w - g.pad_left + tap % g.kernel_w * g.dilation_w;
  if (in_row < 0 || in_row >= Value(g.in_height) || in_column < 0 || in_column >= Value(g.in_width))
    return std::nullopt;
  return base + image * Value(g.image_stride) + in_row * Value(g.row_stride) + in_column * Value(g.column_stride) +
         channel;
}

double Evaluator::ImplicitA(const ContractionSpec& c, int64_t base, int64_t m, int64_t k) {
  const std::optional<int64_t> offset = ImplicitOffset(c, base, m, k);
  return offset ? Factor(c.a, *offset) : 0;
}

int64_t Evaluator::ByteSum(const ContractionSpec& c, int64_t a_base, int64_t b_base, int64_t m, int64_t n) {
  const size_t batch = c.batch.size();
  const int64_t width = int64_t{c.tile.nv} * lanes_, k_extent = Value(c.k);
  const int64_t run = c.conv ? k_extent / (int64_t{c.conv->kernel_h} * c.conv->kernel_w) : k_extent;
  const int64_t panel = b_base + n / width * width * PanelDepth(c, k_extent), steps = (run + 3) / 4;
  const Access zeros{c.zeros, c.a.storage, {}};
  int64_t sum = 0;
  for (int64_t k = 0; k < k_extent; ++k) {
    double a;
    if (c.conv) {
      const std::optional<int64_t> offset = ImplicitOffset(c, a_base, m, k);
      a = offset ? Factor(c.a, *offset) : Factor(zeros, k % run);
    } else {
      a = Factor(c.a, a_base + m * Value(c.a.strides[batch]) + k);
    }
    if (c.a.storage == DType::kI8) a += 128;
    const int64_t step = k / run * steps + k % run / 4;
    sum += static_cast<int64_t>(a * Factor(c.b, panel + (step * width + n % width) * 4 + k % run % 4));
  }
  return static_cast<int32_t>(static_cast<uint64_t>(sum));
}

void Evaluator::Run(const ContractionSpec& c, int64_t begin, int64_t end) {
  const int64_t m_extent = Value(c.m), n_extent = Value(c.n), k_extent = Value(c.k);
  const int64_t width = int64_t{c.tile.nv} * lanes_;
  const ContractionOrder order(c, m_extent, n_extent, width);
  const size_t batch = c.batch.size();
  Point point{&c.accesses, std::vector<int64_t>(batch + 2, 0), nullptr, {}};
  const auto b_offset = [&](int64_t panel, int64_t k, int64_t n) {
    switch (c.b_layout) {
      case BLayout::kRows:
        return k * Value(c.b.strides[batch]) + n;
      case BLayout::kPanels:
        return (panel * k_extent + k) * width + n % width;
      case BLayout::kTransposed:
        return n * Value(c.b.strides[batch]) + k;
    }
    return int64_t{0};
  };
  for (int64_t i = begin; i < end; ++i) {
    const auto [matrix, panel, tile] = order.At(i);
    int64_t rest = matrix;
    for (size_t dim = batch; dim-- > 0;) {
      point.coordinates[dim] = rest % Value(c.batch[dim]);
      rest /= Value(c.batch[dim]);
    }
    int64_t a_base = 0, b_base = 0;
    for (size_t dim = 0; dim < batch; ++dim) {
      a_base += point.coordinates[dim] * Value(c.a.strides[dim]);
      b_base += point.coordinates[dim] * Value(c.b.strides[dim]);
    }
    for (int64_t m = tile * c.tile.mr; m < std::min(m_extent, (tile + 1) * c.tile.mr); ++m) {
      for (int64_t n = panel * width; n < std::min(n_extent, (panel + 1) * width); ++n) {
        point.coordinates[batch] = m;
        point.coordinates[batch + 1] = n;
        if (!IsFloat(c.a.storage)) {
          point.accumulator = {0, ByteSum(c, a_base, b_base, m, n)};
          StoreAll(c.epilogue, c.stores, point);
          continue;
        }
        double sum = 0;
        for (int64_t k = 0; k < k_extent; ++k) {
          const double a =
              c.conv ? ImplicitA(c, a_base, m, k)
                     : Factor(c.a, a_base + m * Value(c.a.strides[batch]) + k * Value(c.a.strides[batch + 1]));
          sum += a * Factor(c.b, b_base + b_offset(panel, k, n));
        }
        point.accumulator = Rounded(DType::kF32, sum);
        StoreAll(c.epilogue, c.stores, point);
      }
    }
  }
}

void Evaluator::Run(const AttentionSpec& a, int64_t begin, int64_t end) {
  const int64_t queries = int64_t{a.tile.nv} * lanes_, tiles = (Value(a.m) + queries - 1) / queries;
  const size_t batch = a.batch.size();
  for (int64_t item = begin; item < end; ++item) {
    std::vector<int64_t> place(batch + 2, 0);
    int64_t rest = item / tiles;
    for (size_t dim = batch; dim-- > 0;) {
      place[dim] = rest % Value(a.batch[dim]);
      rest /= Value(a.batch[dim]);
    }
    const int64_t first = item % tiles * queries;
    for (int64_t m = first; m < std::min(Value(a.m), first + queries); ++m) AttendOne(a, place, m);
  }
}

// One query.
void Evaluator::AttendOne(const AttentionSpec& a, const std::vector<int64_t>& batch, int64_t m) {
  const size_t dims = a.batch.size();
  const int64_t keys = Value(a.n);
  auto element = [&](const Access& access, int64_t row, int64_t i) {
    std::vector<int64_t> coordinates = batch;
    coordinates[dims] = row;
    coordinates[dims + 1] = i;
    return Offset(access, coordinates);
  };
  std::vector<double> weights;
  double largest = -std::numeric_limits<double>::infinity(), total = 0;
  for (int64_t n = 0; n < keys; ++n) {
    double sum = 0;
    for (int64_t i = 0; i < a.key_elements; ++i)
      sum += Factor(a.q, element(a.q, m, i)) * Factor(a.k, element(a.k, n, i));
    Point point{&a.accesses, batch, nullptr, {}};
    point.coordinates[dims] = n;
    point.coordinates[dims + 1] = m;
    point.accumulator = Rounded(DType::kF32, sum);
    weights.push_back(Evaluate(a.scores, a.score, point).number);
    largest = Maximum(largest, weights.back());
  }
  for (double& weight : weights) {
    weight = Rounded(DType::kF32, std::exp(weight - largest)).number;
    total += weight;
  }
  for (int64_t i = 0; i < a.value_elements; ++i) {
    double sum = 0;
    for (int64_t n = 0; n < keys; ++n) sum += weights[static_cast<size_t>(n)] * Factor(a.v, element(a.v, n, i));
    StoreElement(a.out.storage, DType::kF32, Rounded(DType::kF32, keys == 0 ? 0 : sum / total),
                 pointers_[static_cast<size_t>(a.out.pointer)], element(a.out, m, i));
  }
}

void Evaluator::Run(const WindowSpec& w, int64_t begin, int64_t end) {
  const WindowGeometry& g = w.geometry;
  const int64_t out_height = Value(g.out_height), out_width = Value(g.out_width);
  Point point{&w.accesses, std::vector<int64_t>(4, 0), nullptr, {}};
  for (int64_t line = begin; line < end; ++line) {
    const int64_t image = line / out_height, row = line % out_height;
    for (int64_t column = 0; column < out_width; ++column) {
      for (int64_t channel = 0; channel < Value(w.channels); ++channel) {
        double total = Identity(w.combine, DType::kF32).number;
        int64_t inside = 0;
        for (int64_t tap = 0; tap < int64_t{g.kernel_h} * g.kernel_w; ++tap) {
          const int64_t in_row = row * g.stride_h - g.pad_top + tap / g.kernel_w * g.dilation_h;
          const int64_t in_column = column * g.stride_w - g.pad_left + tap % g.kernel_w * g.dilation_w;
          if (in_row < 0 || in_row >= Value(g.in_height) || in_column < 0 || in_column >= Value(g.in_width)) continue;
          ++inside;
          double value = Factor(w.input, image * Value(g.image_stride) + in_row * Value(g.row_stride) +
                                             in_column * Value(g.column_stride) + channel);
          if (w.weights)
            value *= Factor(*w.weights, tap * Value(w.weights->strides[0]) + channel * Value(w.weights->strides[1]));
          total = w.combine == Combine::kMax ? Maximum(total, value) : total + value;
        }
        const int64_t taps = int64_t{g.kernel_h} * g.kernel_w;
        if (w.average) total /= static_cast<double>(w.count_include_pad ? taps : std::max<int64_t>(inside, 1));
        point.coordinates = {image, row, column, channel};
        point.accumulator = Rounded(DType::kF32, total);
        StoreAll(w.epilogue, w.stores, point);
      }
    }
  }
}

void Evaluator::RunStage(const RecurrentSpec& r, const RecurrentStage& stage, int64_t time, int64_t row) {
  std::vector<Scalar> sums(static_cast<size_t>(stage.gates));
  Point point{&r.accesses, {time, row, 0}, nullptr, {}, &sums};
  std::vector<float> input(static_cast<size_t>(r.units));
  if (stage.gates > 0) {
    const Access& access = r.accesses[static_cast<size_t>(stage.input)];
    for (int64_t k = 0; k < r.units; ++k) {
      const int64_t at[] = {time, row, k};
      input[static_cast<size_t>(k)] = static_cast<float>(Factor(access, Offset(access, at)));
    }
  }
  const int64_t width = int64_t{stage.vectors} * lanes_, step = stage.gates * width;
  for (int64_t unit = 0; unit < r.units; ++unit) {
    for (int64_t gate = 0; gate < stage.gates; ++gate) {
      const float* column = static_cast<const float*>(pointers_[static_cast<size_t>(stage.panels)]) +
                            unit / width * r.units * step + gate * width + unit % width;
      double sum = 0;
      for (int64_t k = 0; k < r.units; ++k)
        sum += static_cast<double>(input[static_cast<size_t>(k)]) * static_cast<double>(column[k * step]);
      sums[static_cast<size_t>(gate)] = Rounded(DType::kF32, sum);
    }
    point.coordinates[2] = unit;
    StoreAll(stage.body, stage.stores, point);
  }
}

void Evaluator::Run(const RecurrentSpec& r, int64_t begin, int64_t end) {
  const int64_t rows = Value(r.rows), time = Value(r.time);
  for (int64_t row = begin * r.tile_rows; row < std::min(rows, end * r.tile_rows); ++row) {
    int64_t length = time;
    if (r.lengths >= 0) {
      length = static_cast<const int32_t*>(pointers_[static_cast<size_t>(r.lengths)])[row];
      length = std::clamp<int64_t>(length, 0, time);
    }
    for (const RecurrentStage& stage : r.before) RunStage(r, stage, 0, row);
    for (int64_t turn = 0; turn < length; ++turn)
      for (const RecurrentStage& stage : r.steps) RunStage(r, stage, r.reversed ? length - 1 - turn : turn, row);
    for (int64_t turn = length; turn < time; ++turn)
      for (const RecurrentStage& stage : r.after) RunStage(r, stage, turn, row);
  }
}

}  // namespace

Status EvaluateSpec(const KernelSpec& spec, std::span<void* const> pointers, std::span<const int64_t> dims,
                    int f32_lanes, int64_t begin, int64_t end) {
  RETURN_IF_ERROR(VerifySpec(spec));
  if (pointers.size() != static_cast<size_t>(spec.pointers) || dims.size() != static_cast<size_t>(spec.dims))
    return Fail(ErrorCode::kInvalidArgument,
                "kernel takes " + std::to_string(spec.pointers) + " pointers and " + std::to_string(spec.dims) +
                    " dims; it was given " + std::to_string(pointers.size()) + " and " + std::to_string(dims.size()));
  if (begin < 0 || end > RangeOf(spec, dims, f32_lanes))
    return Fail(ErrorCode::kInvalidArgument, "the part to run lies outside the kernel's range");
  Evaluator evaluator(pointers, dims, f32_lanes);
  std::visit([&](const auto& kernel) { evaluator.Run(kernel, begin, end); }, spec.kernel);
  return {};
}

}  // namespace kiln::ir

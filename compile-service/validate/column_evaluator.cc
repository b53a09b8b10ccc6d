#include "compile-service/validate/column_evaluator.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <vector>

#include "compile-service/ir/nest_stages.h"
#include "compile-service/validate/attention_columns.h"
#include "compile-service/validate/dot_columns.h"
#include "compile-service/validate/recurrent_columns.h"
#include "compile-service/validate/scalar_columns.h"
#include "compile-service/validate/spec_call.h"

namespace kiln {
namespace {

using ir::Combine;
using ir::SpecInt;
using ir::Stage;

// Totals of a reduction: floats in double until they are finished, integers wrapping.
template <class T>
using Total = std::conditional_t<std::is_floating_point_v<T>, double, T>;

template <class T>
Total<T> IdentityOf(Combine combine) {
  using Limits = std::numeric_limits<T>;
  switch (combine) {
    case Combine::kSum:
      return 0;
    case Combine::kProduct:
      return 1;
    case Combine::kMax:
      return std::is_floating_point_v<T> ? -Limits::infinity() : Limits::min();
    case Combine::kMin:
      return std::is_floating_point_v<T> ? Limits::infinity() : Limits::max();
  }
  return 0;
}

template <class T>
Total<T> CombinedWith(Combine combine, Total<T> a, T value) {
  if constexpr (std::is_floating_point_v<T>) {
    const auto b = static_cast<double>(value);
    switch (combine) {
      case Combine::kSum:
        return a + b;
      case Combine::kProduct:
        return a * b;
      case Combine::kMax:
        return MaximumOf(a, b);
      case Combine::kMin:
        return MinimumOf(a, b);
    }
  } else {
    const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(value);
    switch (combine) {
      case Combine::kSum:
        return static_cast<T>(x + y);
      case Combine::kProduct:
        return static_cast<T>(x * y);
      case Combine::kMax:
        return std::max(a, value);
      case Combine::kMin:
        return std::min(a, value);
    }
  }
  return a;
}

// Calls `f.template operator()<T>()` with the type of a reduction.
template <class F>
void DispatchReduced(DType type, F&& f) {
  if (type == DType::kF32) return f.template operator()<float>();
  if (type == DType::kF64) return f.template operator()<double>();
  if (type == DType::kI32) return f.template operator()<int32_t>();
  return f.template operator()<int64_t>();
}

// Results of a nest are inexact when they are sums or products of floats, or chosen among inexact values.
Decisions DecisionsOf(const ir::LoopNestSpec& nest) {
  std::vector<ir::Store> stores;
  for (const Stage& stage : nest.stages) stores.insert(stores.end(), stage.stores.begin(), stage.stores.end());
  return FindDecisions(nest.body, Loads(nest.accesses, stores), [&](int32_t index, const std::vector<bool>& inexact) {
    const Stage& stage = nest.stages[static_cast<size_t>(index)];
    const bool chosen = stage.combine == Combine::kMax || stage.combine == Combine::kMin;
    return IsFloat(nest.body[static_cast<size_t>(stage.node)].type) &&
           (!chosen || inexact[static_cast<size_t>(stage.node)]);
  });
}

class NestEvaluator {
 public:
  NestEvaluator(const ir::LoopNestSpec& nest, const SpecCall& call)
      : nest_(nest),
        columns_(nest.body, nest.accesses, nest.stages.size(), call.pointers, call.dims),
        inner_(call.Value(nest.inner)),
        first_reduce_(nest.outer.size()),
        coordinates_(nest.outer.size() + nest.reduce.size() + 1, 0) {
    for (const SpecInt& extent : nest.outer) outer_.push_back(call.Value(extent));
    for (const SpecInt& extent : nest.reduce) reduce_.push_back(call.Value(extent));
    for (const Stage& stage : nest.stages) orders_.push_back(columns_.OrderFor(ir::RootsOf(nest, stage)));
    if (call.leaning != Leaning::kNone) columns_.Lean(call.leaning, DecisionsOf(nest));
  }

  void Run(int64_t begin, int64_t end) {
    if (nest_.outer.empty() && nest_.reduce.empty() && !nest_.reduce_inner) return RunBlocks(begin, end);
    for (int64_t point = begin; point < end; ++point) {
      int64_t rest = point;
      for (size_t dim = outer_.size(); dim-- > 0;) {
        coordinates_[dim] = rest % outer_[dim];
        rest /= outer_[dim];
      }
      if (nest_.reduce_inner) {
        for (size_t stage = 0; stage < nest_.stages.size(); ++stage) RunRowStage(stage);
      } else {
        RunBlocks(0, inner_);
      }
    }
  }

 private:
  // Every stage for inner positions [begin, end), which do not depend on each other.
  void RunBlocks(int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kColumnLength) {
      const int64_t n = std::min(kColumnLength, end - i);
      coordinates_.back() = i;
      for (size_t at = 0; at < nest_.stages.size(); ++at) {
        const Stage& stage = nest_.stages[at];
        if (stage.kind == Stage::Kind::kReduce) {
          ReduceBlock(at, n);
        } else if (stage.kind == Stage::Kind::kScatter) {
          ForReduce([&] { Scatter(at, n); });
        } else if (stage.kind == Stage::Kind::kScan) {
          ScanBlock(at, n);
        } else if (stage.domain == Stage::Domain::kFull) {
          ForReduce([&] { Store(at, n); });
        } else {
          Store(at, n);
        }
      }
    }
  }

  void ReduceBlock(size_t at, int64_t n) {
    const Stage& stage = nest_.stages[at];
    DispatchReduced(nest_.body[static_cast<size_t>(stage.node)].type, [&]<class T>() {
      std::array<Total<T>, kColumnLength> totals;
      totals.fill(IdentityOf<T>(stage.combine));
      const T* values = columns_.values<T>(stage.node);
      ForReduce([&] {
        columns_.Evaluate(orders_[at], coordinates_, n);
        for (size_t i = 0; i < static_cast<size_t>(n); ++i)
          totals[i] = CombinedWith<T>(stage.combine, totals[i], values[i]);
      });
      T* out = columns_.result<T>(at);
      for (size_t i = 0; i < static_cast<size_t>(n); ++i) out[i] = Finished<T>(stage.combine, totals[i]);
    });
  }

  template <class T>
  T Finished(Combine combine, Total<T> total) {
    if constexpr (std::is_floating_point_v<T>) {
      if (combine == Combine::kSum) total = columns_.LeantSum(total);
    }
    return static_cast<T>(total);
  }

  void Scatter(size_t at, int64_t n) {
    const Stage& stage = nest_.stages[at];
    columns_.Evaluate(orders_[at], coordinates_, n);
    columns_.StoreAt(stage.node, stage.stores.front().node, coordinates_, n);
  }

  void ScanBlock(size_t at, int64_t n) {
    const Stage& stage = nest_.stages[at];
    DispatchReduced(nest_.body[static_cast<size_t>(stage.node)].type, [&]<class T>() {
      T* running = columns_.result<T>(at);
      std::fill_n(running, n, static_cast<T>(IdentityOf<T>(stage.combine)));
      ForReduce([&] {
        Store(at, n);
        std::copy_n(columns_.values<T>(stage.node), n, running);
      });
    });
  }

  // A stage of nests whose inner dim is reduced: one result per outer point.
  void RunRowStage(size_t at) {
    const Stage& stage = nest_.stages[at];
    coordinates_.back() = 0;
    if (stage.kind == Stage::Kind::kReduce) {
      ReduceRow(at);
    } else if (stage.domain == Stage::Domain::kRow) {
      Store(at, 1);
    } else if (stage.domain == Stage::Domain::kInner) {
      ForInner([&](int64_t n) { Store(at, n); });
    } else {
      ForReduce([&] { ForInner([&](int64_t n) { Store(at, n); }); });
    }
  }

  void ReduceRow(size_t at) {
    const Stage& stage = nest_.stages[at];
    DispatchReduced(nest_.body[static_cast<size_t>(stage.node)].type, [&]<class T>() {
      Total<T> total = IdentityOf<T>(stage.combine);
      const T* values = columns_.values<T>(stage.node);
      ForReduce([&] {
        ForInner([&](int64_t n) {
          columns_.Evaluate(orders_[at], coordinates_, n);
          for (int64_t i = 0; i < n; ++i) total = CombinedWith<T>(stage.combine, total, values[i]);
        });
      });
      std::fill_n(columns_.result<T>(at), kColumnLength, Finished<T>(stage.combine, total));
    });
  }

  void Store(size_t at, int64_t n) {
    columns_.Evaluate(orders_[at], coordinates_, n);
    columns_.StoreAll(nest_.stages[at].stores, coordinates_, n);
  }

  template <class F>
  void ForInner(F&& body) {
    for (int64_t i = 0; i < inner_; i += kColumnLength) {
      coordinates_.back() = i;
      body(std::min(kColumnLength, inner_ - i));
    }
    coordinates_.back() = 0;
  }

  // Every combination of reduce coordinates, the last one fastest; they are 0 afterwards.
  template <class F>
  void ForReduce(F&& body) {
    if (std::any_of(reduce_.begin(), reduce_.end(), [](int64_t extent) { return extent <= 0; })) return;
    for (;;) {
      body();
      size_t dim = reduce_.size();
      for (; dim > 0; --dim) {
        int64_t& at = coordinates_[first_reduce_ + dim - 1];
        if (++at < reduce_[dim - 1]) break;
        at = 0;
      }
      if (dim == 0) return;
    }
  }

  const ir::LoopNestSpec& nest_;
  ScalarColumns columns_;
  int64_t inner_;
  size_t first_reduce_;
  std::vector<int64_t> coordinates_, outer_, reduce_;
  std::vector<std::vector<int32_t>> orders_;  // per stage
};

class ContractionEvaluator {
 public:
  ContractionEvaluator(const ir::ContractionSpec& spec, const SpecCall& call)
      : spec_(spec),
        call_(call),
        columns_(spec.epilogue, spec.accesses, 1, call.pointers, call.dims),
        order_(columns_.OrderFor(RootsOf(spec.stores))),
        bytes_(!IsFloat(spec.a.storage)),
        m_(call.Value(spec.m)),
        n_(call.Value(spec.n)),
        k_(call.Value(spec.k)),
        width_(int64_t{spec.tile.nv} * call.lanes),
        run_(spec.conv ? k_ / (int64_t{spec.conv->kernel_h} * spec.conv->kernel_w) : k_),
        coordinates_(spec.batch.size() + 2, 0),
        row_(static_cast<size_t>(k_)),
        wide_row_(static_cast<size_t>(k_)) {
    if (call.leaning != Leaning::kNone)
      columns_.Lean(call.leaning,
                    FindDecisions(spec.epilogue, Loads(spec.accesses, spec.stores), Sums(IsFloat(spec.a.storage))));
  }

  void Run(int64_t begin, int64_t end) {
    const int64_t m_tiles = (m_ + spec_.tile.mr - 1) / spec_.tile.mr, panels = (n_ + width_ - 1) / width_;
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t panel = tile / m_tiles % panels, m_tile = tile % m_tiles;
      int64_t rest = tile / m_tiles / panels, a_base = 0, b_base = 0;
      for (size_t dim = spec_.batch.size(); dim-- > 0;) {
        const int64_t extent = call_.Value(spec_.batch[dim]);
        coordinates_[dim] = rest % extent;
        rest /= extent;
        a_base += coordinates_[dim] * call_.Value(spec_.a.strides[dim]);
        b_base += coordinates_[dim] * call_.Value(spec_.b.strides[dim]);
      }
      const Panel b = bytes_ ? Panel{} : PanelAt(b_base, panel);
      for (int64_t m = m_tile * spec_.tile.mr; m < std::min(m_, (m_tile + 1) * spec_.tile.mr); ++m) {
        LoadRow(a_base, m);
        ForBlocks(m, panel, [&](int64_t column, int64_t count) {
          if (bytes_)
            SumBytes(b_base + panel * width_ * ir::PanelDepth(spec_, k_), column, count);
          else
            DotColumns(wide_row_, b.data + column, b.stride, count, columns_.result<float>(0));
        });
      }
    }
  }

 private:
  struct Panel {
    const float* data;
    int64_t stride;  // of k
  };

  // The columns of B that the tile reads.
  Panel PanelAt(int64_t base, int64_t panel) {
    const int64_t first = panel * width_;
    const bool panels = spec_.b_layout == ir::BLayout::kPanels, turned = spec_.b_layout == ir::BLayout::kTurned;
    const int64_t stride = panels ? width_ : call_.Value(spec_.b.strides[spec_.batch.size()]);
    const int64_t offset = base + (panels ? panel * k_ * width_ : turned ? first * stride : first);
    const void* pointer = call_.pointers[static_cast<size_t>(spec_.b.pointer)];
    if (spec_.b.storage == DType::kF32 && !turned) return {static_cast<const float*>(pointer) + offset, stride};
    const int64_t columns = std::min(width_, n_ - first);
    if (converted_offset_ == offset) return {converted_.data(), columns};
    converted_offset_ = offset;
    converted_.resize(static_cast<size_t>(k_ * columns));
    for (int64_t k = 0; k < k_; ++k)
      call_.LoadRow(spec_.b, offset + (turned ? k : k * stride), turned ? stride : 1, columns,
                    converted_.data() + k * columns);
    return {converted_.data(), columns};
  }

  // Row m of A, or of the convolution's implicit matrix.
  void LoadRow(int64_t base, int64_t m) {
    if (spec_.conv) {
      LoadImplicitRow(*spec_.conv, base, m);
    } else {
      const size_t batch = spec_.batch.size();
      call_.LoadRow(spec_.a, base + m * call_.Value(spec_.a.strides[batch]), call_.Value(spec_.a.strides[batch + 1]),
                    k_, row_.data());
    }
    std::copy(row_.begin(), row_.end(), wide_row_.begin());
  }

  void LoadImplicitRow(const ir::WindowGeometry& g, int64_t base, int64_t m) {
    const int64_t taps = int64_t{g.kernel_h} * g.kernel_w, channels = k_ / taps;
    const int64_t out_height = call_.Value(g.out_height), out_width = call_.Value(g.out_width);
    const int64_t column = m % out_width, row = m / out_width % out_height, image = m / out_width / out_height;
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t in_row = row * g.stride_h - g.pad_top + tap / g.kernel_w * g.dilation_h;
      const int64_t in_column = column * g.stride_w - g.pad_left + tap % g.kernel_w * g.dilation_w;
      float* out = row_.data() + tap * channels;
      if (in_row < 0 || in_row >= call_.Value(g.in_height) || in_column < 0 || in_column >= call_.Value(g.in_width)) {
        LoadOutside(channels, out);
      } else {
        call_.LoadRow(spec_.a,
                      base + image * call_.Value(g.image_stride) + in_row * call_.Value(g.row_stride) +
                          in_column * call_.Value(g.column_stride),
                      1, channels, out);
      }
    }
  }

  // What a position outside the image reads.
  void LoadOutside(int64_t channels, float* out) const {
    if (bytes_)
      call_.LoadRow({spec_.zeros, spec_.a.storage, {}}, 0, 1, channels, out);
    else
      std::fill_n(out, channels, 0.0f);
  }

  // Sums of bytes modulo 2^32: B lies in groups of four k.
  void SumBytes(int64_t panel, int64_t column, int64_t count) {
    const auto* b = static_cast<const int8_t*>(call_.pointers[static_cast<size_t>(spec_.b.pointer)]) + panel;
    std::array<uint32_t, kColumnLength> sums{};
    for (int64_t k = 0; k < k_; ++k) {
      const int64_t in_run = k % run_, step = k / run_ * ((run_ + 3) / 4) + in_run / 4;
      const auto a = static_cast<int32_t>(row_[static_cast<size_t>(k)]) + (spec_.a.storage == DType::kI8 ? 128 : 0);
      const int8_t* values = b + (step * width_ + column) * 4 + in_run % 4;
      for (int64_t j = 0; j < count; ++j) sums[static_cast<size_t>(j)] += static_cast<uint32_t>(a * values[j * 4]);
    }
    for (int64_t j = 0; j < count; ++j)
      columns_.result<int32_t>(0)[j] = static_cast<int32_t>(sums[static_cast<size_t>(j)]);
  }

  // Calls `sum(column, count)` for runs of the panel's columns, and applies the epilogue to what it accumulated.
  template <class F>
  void ForBlocks(int64_t m, int64_t panel, F&& sum) {
    const int64_t first = panel * width_, end = std::min(n_, first + width_);
    for (int64_t n = first; n < end; n += kColumnLength) {
      const int64_t count = std::min(kColumnLength, end - n);
      sum(n - first, count);
      coordinates_[spec_.batch.size()] = m;
      coordinates_.back() = n;
      columns_.Evaluate(order_, coordinates_, count);
      columns_.StoreAll(spec_.stores, coordinates_, count);
    }
  }

  const ir::ContractionSpec& spec_;
  const SpecCall& call_;
  ScalarColumns columns_;
  std::vector<int32_t> order_;
  const bool bytes_;
  int64_t m_, n_, k_, width_;
  const int64_t run_;  // the k of one position of a convolution, else all of k
  std::vector<int64_t> coordinates_;
  std::vector<float> row_, converted_;
  std::optional<int64_t> converted_offset_;  // of the panel in converted_
  std::vector<double> wide_row_;
};

class WindowEvaluator {
 public:
  WindowEvaluator(const ir::WindowSpec& spec, const SpecCall& call)
      : spec_(spec),
        call_(call),
        columns_(spec.epilogue, spec.accesses, 1, call.pointers, call.dims),
        order_(columns_.OrderFor(RootsOf(spec.stores))) {
    if (call.leaning != Leaning::kNone)
      columns_.Lean(call.leaning, FindDecisions(spec.epilogue, Loads(spec.accesses, spec.stores),
                                                Sums(spec.combine == Combine::kSum)));
  }

  void Run(int64_t begin, int64_t end) {
    const int64_t out_height = call_.Value(spec_.geometry.out_height), channels = call_.Value(spec_.channels);
    const int64_t out_width = call_.Value(spec_.geometry.out_width);
    for (int64_t line = begin; line < end; ++line)
      for (int64_t column = 0; column < out_width; ++column)
        for (int64_t channel = 0; channel < channels; channel += kColumnLength)
          RunColumn({line / out_height, line % out_height, column, channel},
                    std::min(kColumnLength, channels - channel));
  }

 private:
  void RunColumn(const std::array<int64_t, 4>& at, int64_t n) {
    const ir::WindowGeometry& g = spec_.geometry;
    const int64_t taps = int64_t{g.kernel_h} * g.kernel_w;
    std::array<double, kColumnLength> totals;
    totals.fill(IdentityOf<float>(spec_.combine));
    int64_t inside = 0;
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t row = at[1] * g.stride_h - g.pad_top + tap / g.kernel_w * g.dilation_h;
      const int64_t column = at[2] * g.stride_w - g.pad_left + tap % g.kernel_w * g.dilation_w;
      if (row < 0 || row >= call_.Value(g.in_height) || column < 0 || column >= call_.Value(g.in_width)) continue;
      ++inside;
      call_.LoadRow(spec_.input,
                    at[0] * call_.Value(g.image_stride) + row * call_.Value(g.row_stride) +
                        column * call_.Value(g.column_stride) + at[3],
                    1, n, input_.data());
      AddTap(tap, at[3], n, totals);
    }
    const auto divisor = static_cast<double>(spec_.count_include_pad ? taps : std::max<int64_t>(inside, 1));
    for (int64_t i = 0; i < n; ++i) {
      const double total = totals[static_cast<size_t>(i)];
      columns_.result<float>(0)[i] = static_cast<float>(spec_.average ? total / divisor : total);
    }
    columns_.Evaluate(order_, at, n);
    columns_.StoreAll(spec_.stores, at, n);
  }

  void AddTap(int64_t tap, int64_t channel, int64_t n, std::array<double, kColumnLength>& totals) {
    if (spec_.weights) {
      const int64_t stride = call_.Value(spec_.weights->strides[1]);
      call_.LoadRow(*spec_.weights, tap * call_.Value(spec_.weights->strides[0]) + channel * stride, stride, n,
                    weights_.data());
    }
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      const auto value = static_cast<double>(input_[i]);
      if (spec_.combine == Combine::kMax)
        totals[i] = MaximumOf(totals[i], value);
      else
        totals[i] += spec_.weights ? value * static_cast<double>(weights_[i]) : value;
    }
  }

  const ir::WindowSpec& spec_;
  const SpecCall& call_;
  ScalarColumns columns_;
  std::vector<int32_t> order_;
  std::array<float, kColumnLength> input_, weights_;
};

void Run(const ir::LoopNestSpec& spec, const SpecCall& call, int64_t begin, int64_t end) {
  NestEvaluator(spec, call).Run(begin, end);
}
void Run(const ir::ContractionSpec& spec, const SpecCall& call, int64_t begin, int64_t end) {
  ContractionEvaluator(spec, call).Run(begin, end);
}
void Run(const ir::WindowSpec& spec, const SpecCall& call, int64_t begin, int64_t end) {
  WindowEvaluator(spec, call).Run(begin, end);
}
void Run(const ir::RecurrentSpec& spec, const SpecCall& call, int64_t begin, int64_t end) {
  EvaluateRecurrence(spec, call, begin, end);
}

void Run(const ir::AttentionSpec& spec, const SpecCall& call, int64_t begin, int64_t end) {
  EvaluateAttention(spec, call, begin, end);
}

}  // namespace

Status EvaluateByColumns(const ir::KernelSpec& spec, std::span<void* const> pointers, std::span<const int64_t> dims,
                         int f32_lanes, int64_t begin, int64_t end, Leaning leaning) {
  RETURN_IF_ERROR(ir::EvaluateSpec(spec, pointers, dims, f32_lanes, begin, begin));  // checks, computes nothing
  if (end > ir::RangeOf(spec, dims, f32_lanes))
    return Fail(ErrorCode::kInvalidArgument, "the part to run lies outside the kernel's range");
  const SpecCall call{pointers, dims, f32_lanes, leaning};
  return std::visit(
      [&](const auto& kernel) -> Status {
        Run(kernel, call, begin, end);
        return {};
      },
      spec.kernel);
}

}  // namespace kiln

#include "compile-service/validate/contraction_columns.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "compile-service/validate/dot_columns.h"
#include "compile-service/validate/scalar_columns.h"

namespace kiln {
namespace {

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
    const ir::ContractionOrder order(spec_, m_, n_, width_);
    for (int64_t i = begin; i < end; ++i) {
      const auto [matrix, panel, tile] = order.At(i);
      int64_t rest = matrix, a_base = 0, b_base = 0;
      for (size_t dim = spec_.batch.size(); dim-- > 0;) {
        const int64_t extent = call_.Value(spec_.batch[dim]);
        coordinates_[dim] = rest % extent;
        rest /= extent;
        a_base += coordinates_[dim] * call_.Value(spec_.a.strides[dim]);
        b_base += coordinates_[dim] * call_.Value(spec_.b.strides[dim]);
      }
      const Panel b = bytes_ ? Panel{} : PanelAt(b_base, panel);
      for (int64_t m = tile * spec_.tile.mr; m < std::min(m_, (tile + 1) * spec_.tile.mr); ++m) {
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
    const bool panels = spec_.b_layout == ir::BLayout::kPanels, transposed = spec_.b_layout == ir::BLayout::kTransposed;
    const int64_t stride = panels ? width_ : call_.Value(spec_.b.strides[spec_.batch.size()]);
    const int64_t offset = base + (panels ? panel * k_ * width_ : transposed ? first * stride : first);
    const void* pointer = call_.pointers[static_cast<size_t>(spec_.b.pointer)];
    if (spec_.b.storage == DType::kF32 && !transposed) return {static_cast<const float*>(pointer) + offset, stride};
    const int64_t columns = std::min(width_, n_ - first);
    if (converted_offset_ == offset) return {converted_.data(), columns};
    converted_offset_ = offset;
    converted_.resize(static_cast<size_t>(k_ * columns));
    for (int64_t k = 0; k < k_; ++k)
      call_.LoadRow(spec_.b, offset + (transposed ? k : k * stride), transposed ? stride : 1, columns,
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

}  // namespace

void EvaluateContraction(const ir::ContractionSpec& spec, const SpecCall& call, int64_t begin, int64_t end) {
  ContractionEvaluator(spec, call).Run(begin, end);
}

}  // namespace kiln

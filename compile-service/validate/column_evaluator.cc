#include "compile-service/validate/column_evaluator.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "compile-service/validate/attention_columns.h"
#include "compile-service/validate/contraction_columns.h"
#include "compile-service/validate/nest_columns.h"
#include "compile-service/validate/recurrent_columns.h"
#include "compile-service/validate/scalar_columns.h"
#include "compile-service/validate/spec_call.h"

namespace kiln {
namespace {

using ir::Combine;

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
    totals.fill(spec_.combine == Combine::kMax ? -std::numeric_limits<double>::infinity() : 0.0);
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
  EvaluateNest(spec, call, begin, end);
}
void Run(const ir::ContractionSpec& spec, const SpecCall& call, int64_t begin, int64_t end) {
  EvaluateContraction(spec, call, begin, end);
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

#include "compile-service/validate/attention_columns.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "compile-service/ir/scalar_value.h"
#include "compile-service/validate/dot_columns.h"

namespace kiln {
namespace {

class AttentionEvaluator {
 public:
  AttentionEvaluator(const ir::AttentionSpec& spec, const SpecCall& call)
      : spec_(spec),
        call_(call),
        columns_(spec.scores, spec.accesses, 1, call.pointers, call.dims),
        queries_(call.Value(spec.m)),
        keys_(call.Value(spec.n)),
        coordinates_(spec.batch.size() + 2, 0),
        row_(static_cast<size_t>(std::max(spec.key_elements, spec.value_elements))),
        wide_key_(static_cast<size_t>(spec.key_elements)),
        values_(static_cast<size_t>(keys_ * spec.value_elements)) {
    const int32_t roots[] = {spec.score};
    order_ = columns_.OrderFor(roots);
    if (call.leaning != Leaning::kNone)
      columns_.Lean(call.leaning, FindDecisions(spec.scores, Loads(spec.accesses, {}), Sums(true)));
  }

  void Run(int64_t begin, int64_t end) {
    const int64_t width = int64_t{spec_.tile.nv} * call_.lanes, tiles = (queries_ + width - 1) / width;
    for (int64_t item = begin; item < end; ++item) {
      int64_t rest = item / tiles;
      for (size_t dim = spec_.batch.size(); dim-- > 0;) {
        const int64_t extent = call_.Value(spec_.batch[dim]);
        coordinates_[dim] = rest % extent;
        rest /= extent;
      }
      for (int64_t n = 0; n < keys_; ++n)
        call_.LoadRow(spec_.v, RowOf(spec_.v, n), ElementStride(spec_.v), spec_.value_elements,
                      values_.data() + n * spec_.value_elements);
      const int64_t first = item % tiles * width, last = std::min(queries_, first + width);
      for (int64_t m = first; m < last; m += kColumnLength) Attend(m, std::min(kColumnLength, last - m));
    }
  }

 private:
  int64_t ElementStride(const ir::Access& access) const { return call_.Value(access.strides.back()); }
  // Offset of a row's first element, at the current place in the batch.
  int64_t RowOf(const ir::Access& access, int64_t row) const {
    int64_t offset = row * call_.Value(access.strides[spec_.batch.size()]);
    for (size_t dim = 0; dim < spec_.batch.size(); ++dim)
      offset += coordinates_[dim] * call_.Value(access.strides[dim]);
    return offset;
  }

  // `count` queries from `first` on.
  void Attend(int64_t first, int64_t count) {
    Scores(first, count);
    std::vector<double> weights(static_cast<size_t>(keys_));
    for (int64_t q = 0; q < count; ++q) {
      double largest = -std::numeric_limits<double>::infinity(), total = 0;
      for (int64_t n = 0; n < keys_; ++n)
        largest = MaximumOf(largest, static_cast<double>(scores_[static_cast<size_t>(n * count + q)]));
      for (int64_t n = 0; n < keys_; ++n) {
        const double score = static_cast<double>(scores_[static_cast<size_t>(n * count + q)]);
        double& weight = weights[static_cast<size_t>(n)];
        weight = static_cast<double>(static_cast<float>(std::exp(score - largest)));
        total += weight;
      }
      // The sums stay in double until they are divided.
      std::vector<double> sums(static_cast<size_t>(spec_.value_elements), 0);
      for (size_t n = 0; n < weights.size(); ++n)
        for (size_t i = 0; i < sums.size(); ++i)
          sums[i] += weights[n] * static_cast<double>(values_[n * sums.size() + i]);
      for (size_t i = 0; i < sums.size(); ++i) row_[i] = static_cast<float>(keys_ == 0 ? 0 : sums[i] / total);
      StoreRow(RowOf(spec_.out, first + q));
    }
  }

  // Into scores_, per key those of `count` queries.
  void Scores(int64_t first, int64_t count) {
    transposed_queries_.resize(static_cast<size_t>(spec_.key_elements * count));
    for (int64_t i = 0; i < spec_.key_elements; ++i)
      call_.LoadRow(spec_.q, RowOf(spec_.q, first) + i * ElementStride(spec_.q),
                    call_.Value(spec_.q.strides[spec_.batch.size()]), count, transposed_queries_.data() + i * count);
    scores_.resize(static_cast<size_t>(keys_ * count));
    const size_t dims = spec_.batch.size();
    for (int64_t n = 0; n < keys_; ++n) {
      call_.LoadRow(spec_.k, RowOf(spec_.k, n), ElementStride(spec_.k), spec_.key_elements, row_.data());
      std::copy_n(row_.begin(), wide_key_.size(), wide_key_.begin());
      DotColumns(wide_key_, transposed_queries_.data(), count, count, columns_.result<float>(0));
      coordinates_[dims] = n;
      coordinates_[dims + 1] = first;
      columns_.Evaluate(order_, coordinates_, count);
      std::copy_n(columns_.values<float>(spec_.score), count, scores_.data() + n * count);
    }
  }

  void StoreRow(int64_t offset) {
    const int64_t stride = ElementStride(spec_.out);
    for (int64_t i = 0; i < spec_.value_elements; ++i)
      ir::StoreElement(spec_.out.storage, DType::kF32, {row_[static_cast<size_t>(i)], 0},
                       call_.pointers[static_cast<size_t>(spec_.out.pointer)], offset + i * stride);
  }

  const ir::AttentionSpec& spec_;
  const SpecCall& call_;
  ScalarColumns columns_;
  std::vector<int32_t> order_;
  const int64_t queries_, keys_;
  std::vector<int64_t> coordinates_;  // batch…, key, query
  std::vector<float> row_;
  std::vector<double> wide_key_;
  std::vector<float> values_;                       // of all keys, without gaps
  std::vector<float> transposed_queries_, scores_;  // [element][query], [key][query]
};

}  // namespace

void EvaluateAttention(const ir::AttentionSpec& spec, const SpecCall& call, int64_t begin, int64_t end) {
  AttentionEvaluator(spec, call).Run(begin, end);
}

}  // namespace kiln

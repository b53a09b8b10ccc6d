// ScalarColumns: a scalar program of a kernel spec, evaluated for a run of neighbouring positions at once.
//
// Every node has a column of kColumnLength values of its own type; a node is computed for the whole run before the next
// one. The values are those of ir::EvaluateSpec bit for bit: f32 nodes compute in float where that rounds as double and
// back does, elementary functions in double.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "compile-service/ir/kernel_spec.h"
#include "compile-service/validate/decisions.h"
#include "compile-service/validate/scalar_values.h"

namespace kiln {

inline constexpr int64_t kColumnLength = 128;

// Not thread-safe. Pointers and the spec's parts must outlive it.
class ScalarColumns {
 public:
  // `results`: how many StageResult or Accumulator indices there are.
  ScalarColumns(const ir::ScalarProgram& program, const std::vector<ir::Access>& accesses, size_t results,
                std::span<void* const> pointers, std::span<const int64_t> dims);

  // From now on, what the decisions are made on is leant first.
  void Lean(Leaning leaning, Decisions decisions);
  // A finished sum, leant when the decisions are.
  double LeantSum(double sum) {
    if (leaning_ == Leaning::kNone) return sum;
    return LeansUp() ? sum * (1 + kSumTolerance) : sum * (1 - kSumTolerance);
  }

  // What `roots` need, in dependency order.
  std::vector<int32_t> OrderFor(std::span<const int32_t> roots) const;
  // Computes the nodes of `order` at n <= kColumnLength positions: `coordinates`, and onwards along the last of them.
  void Evaluate(std::span<const int32_t> order, std::span<const int64_t> coordinates, int64_t n);
  // Stores computed columns at the same positions.
  void StoreAll(std::span<const ir::Store> stores, std::span<const int64_t> coordinates, int64_t n);
  // Stores the column of `value` where LoadAt `place`, of which the position is computed, reads.
  void StoreAt(int32_t place, int32_t value, std::span<const int64_t> coordinates, int64_t n);

  template <class T>
  T* values(int32_t node) {
    return reinterpret_cast<T*>(columns_[static_cast<size_t>(node)]);
  }
  // What StageResult and Accumulator nodes of this index read; the caller writes it.
  template <class T>
  T* result(size_t index) {
    return reinterpret_cast<T*>(columns_[program_.size() + index]);
  }

 private:
  int64_t Offset(size_t access, std::span<const int64_t> coordinates) const;
  void Load(const ir::ScalarNode& node, void* out, std::span<const int64_t> coordinates, int64_t n) const;
  void LoadAt(const ir::ScalarNode& node, void* out, std::span<const int64_t> coordinates, int64_t n);
  std::array<int64_t, kColumnLength> PlacesAt(const ir::ScalarNode& node, std::span<const int64_t> coordinates,
                                              int64_t n);
  template <class T>
  const T* Leant(int32_t node, DType storage, int64_t n);
  void Compute(const ir::ScalarNode& node, void* out, int64_t n);
  void ComputeLeant(const ir::ScalarNode& node, void* out, int64_t n);
  template <class T>
  void LeanValues(const T* from, const T* other, int64_t n, T* to);
  bool LeansUp();
  void FillConstant(const ir::ScalarNode& node, void* out) const;

  const ir::ScalarProgram& program_;
  const std::vector<ir::Access>& accesses_;
  std::span<void* const> pointers_;
  std::span<const int64_t> dims_;
  std::vector<std::vector<int64_t>> strides_;  // per access, resolved
  std::vector<uint64_t> memory_;
  std::vector<uint64_t*> columns_;  // per node, then per result
  Leaning leaning_ = Leaning::kNone;
  Decisions decisions_;          // when leaning
  std::vector<uint64_t> leant_;  // a column
  uint64_t mixed_ = 0;           // the row of signs
};

// n elements of a tensor from `offset` on, `stride` apart, as float.
void LoadFloats(DType storage, const void* pointer, int64_t offset, int64_t stride, int64_t n, float* out);

}  // namespace kiln

// The arguments of one call of a kernel, for its evaluators.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compile-service/ir/kernel_spec.h"
#include "compile-service/validate/scalar_columns.h"

namespace kiln {

struct SpecCall {  // views; all outlive the evaluation
  std::span<void* const> pointers;
  std::span<const int64_t> dims;
  int lanes;
  Leaning leaning = Leaning::kNone;

  int64_t Value(const ir::SpecInt& value) const {
    return value.is_argument ? dims[static_cast<size_t>(value.value)] : value.value;
  }
  void LoadRow(const ir::Access& access, int64_t offset, int64_t stride, int64_t n, float* out) const {
    LoadFloats(access.storage, pointers[static_cast<size_t>(access.pointer)], offset, stride, n, out);
  }
};

// Whether sums of `type` are inexact: those of floats are.
inline ReadsInexact Sums(bool of_floats) {
  return [of_floats](int32_t, const std::vector<bool>&) { return of_floats; };
}
inline ReadsInexact Loads(const std::vector<ir::Access>& accesses, const std::vector<ir::Store>& stores) {
  return [reads = ReadsOfWritten(accesses, stores)](int32_t access, const std::vector<bool>&) {
    return reads[static_cast<size_t>(access)];
  };
}

inline std::vector<int32_t> RootsOf(std::span<const ir::Store> stores) {
  std::vector<int32_t> roots;
  for (const ir::Store& store : stores) roots.push_back(store.node);
  return roots;
}

}  // namespace kiln

// What is known about a value before it exists.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/shape/symbol_table.h"
#include "common/tensor/dtype.h"
#include "common/tensor/tensor.h"

namespace kiln {

enum class LayoutClass : uint8_t { kContiguous = 0, kStrided = 1, kStrideZero = 2, kBlocked = 3 };
enum class AlignmentClass : uint8_t { kElement = 0, k64 = 1 };
enum class Device : uint8_t { kCpu = 0, kCuda = 1 };

// The description of a value: dtype, rank and dims (absent when the rank is unknown), layout, alignment, device.
struct TensorDesc {
  DType dtype = DType::kF32;
  std::optional<std::vector<Dim>> dims;  // nullopt: rank unknown until it runs
  LayoutClass layout = LayoutClass::kContiguous;
  bool is_view = false;
  AlignmentClass alignment = AlignmentClass::k64;
  Device device = Device::kCpu;

  bool has_rank() const { return dims.has_value(); }
  int rank() const { return static_cast<int>(dims->size()); }  // precondition: has_rank()
  bool is_static() const;                                      // every dim is a constant
  bool operator==(const TensorDesc&) const = default;
};

TensorDesc StaticDesc(DType dtype, const Dims& dims);
std::string ToString(const TensorDesc& desc, const SymbolTable& symbols);  // "f32[n, 64]", "f32[*]"

// Integer contents known as expressions, element by element (row-major): what folding of shape arithmetic works on.
using KnownValues = std::vector<Dim>;

}  // namespace kiln

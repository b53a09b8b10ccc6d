// What a user knows about a model's dims and the model does not say: `batch=1..32`, `seq=1..2048:8`, `x.3=320`.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/shape/symbol_table.h"

namespace kiln {

// The dims of one name, or one dim of one input, lie in `range` and are multiples of `divisor`.
struct DimHint {
  std::string name;  // a symbol as the model names it (dim_param), or INPUT.AXIS
  Interval range;
  int64_t divisor = 1;
};

// NAME=SIZE, NAME=LOW..HIGH or NAME=LOW..HIGH:DIVISOR; HIGH may be missing ("1..", "1..:8"). InvalidArgument names the
// text and what is wrong with it, an empty range and a range without a multiple of the divisor included.
Result<DimHint> ParseDimHint(std::string_view text);
// Several, each for a name of its own; the error names both texts for one.
Result<std::vector<DimHint>> ParseDimHints(std::span<const std::string> texts);
// Whether both say the same of a dim, or one is a size that the other allows.
bool Agree(const DimHint& a, const DimHint& b);
// "1..2048 in steps of 8"
std::string ToString(const DimHint& hint);

namespace onnx {

// The hints of one import, each of which must find its dims. Not thread-safe.
class DimHints {
 public:
  DimHints() = default;
  explicit DimHints(std::vector<DimHint> hints) : hints_(std::move(hints)), used_(hints_.size(), false) {}

  // The hint for a symbol (dim_param, may be empty) that is dim `axis` of `input`; nullptr: none. Of two that agree,
  // the one that is a size. InvalidArgument names two that do not.
  Result<const DimHint*> Find(const std::string& dim_param, const std::string& input, int axis);
  // ShapeMismatch when the model declares dim `axis` of `input` as `size` and a hint says otherwise.
  Status CheckConstant(const std::string& input, int axis, int64_t size);
  // InvalidArgument names a hint that found no dim.
  Status CheckAllUsed() const;

 private:
  const DimHint* Use(std::string_view name);

  std::vector<DimHint> hints_;
  std::vector<bool> used_;
};

}  // namespace onnx
}  // namespace kiln

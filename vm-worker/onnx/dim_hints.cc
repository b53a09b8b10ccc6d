#include "vm-worker/onnx/dim_hints.h"

#include <charconv>

namespace kiln {
namespace {

bool ParseNumber(std::string_view text, int64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number >= 0;
}

}  // namespace

Result<DimHint> ParseDimHint(std::string_view text) {
  const auto wrong = [&](const std::string& what) {
    return Fail(ErrorCode::kInvalidArgument, "dim hint \"" + std::string(text) + "\": " + what +
                                                 "; write NAME=SIZE, NAME=LOW..HIGH or NAME=LOW..HIGH:DIVISOR");
  };
  const size_t equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0) return wrong("there is no name");
  DimHint hint{.name = std::string(text.substr(0, equals)), .range = {}};
  std::string_view sizes = text.substr(equals + 1);
  if (const size_t colon = sizes.find(':'); colon != std::string_view::npos) {
    if (!ParseNumber(sizes.substr(colon + 1), hint.divisor) || hint.divisor < 1) {
      return wrong("the divisor is no positive integer");
    }
    sizes = sizes.substr(0, colon);
  }
  const size_t dots = sizes.find("..");
  const std::string_view low = sizes.substr(0, dots);
  if (!ParseNumber(low, hint.range.min)) return wrong("the size is no integer of at least 0");
  if (dots == std::string_view::npos) {
    hint.range.max = hint.range.min;
  } else if (const std::string_view high = sizes.substr(dots + 2); !high.empty()) {
    if (!ParseNumber(high, hint.range.max)) return wrong("the upper bound is no integer of at least 0");
  }
  if (hint.range.min > hint.range.max) return wrong("the range is empty");
  // The bounds become multiples themselves, so that they are reached.
  const int64_t past = hint.range.min % hint.divisor;
  if (past != 0) {
    const auto up = CheckedAdd(hint.range.min, hint.divisor - past);
    if (!up) return wrong("the range holds no multiple of " + std::to_string(hint.divisor));
    hint.range.min = *up;
  }
  if (hint.range.max != Interval::kNoBound) hint.range.max -= hint.range.max % hint.divisor;
  if (hint.range.min > hint.range.max) return wrong("the range holds no multiple of " + std::to_string(hint.divisor));
  return hint;
}

Result<std::vector<DimHint>> ParseDimHints(std::span<const std::string> texts) {
  std::vector<DimHint> hints;
  for (const std::string& text : texts) {
    ASSIGN_OR_RETURN(DimHint hint, ParseDimHint(text));
    for (size_t i = 0; i < hints.size(); ++i)
      if (hints[i].name == hint.name)
        return Fail(ErrorCode::kInvalidArgument, "\"" + texts[i] + "\" and \"" + text + "\": the size of " + hint.name +
                                                     " is given twice; give one of them");
    hints.push_back(std::move(hint));
  }
  return hints;
}

bool Agree(const DimHint& a, const DimHint& b) {
  const auto allows = [](const DimHint& hint, int64_t size) {
    return size >= hint.range.min && size <= hint.range.max && size % hint.divisor == 0;
  };
  if (a.range.min == a.range.max) return allows(b, a.range.min);
  if (b.range.min == b.range.max) return allows(a, b.range.min);
  return a.range == b.range && a.divisor == b.divisor;
}

std::string ToString(const DimHint& hint) {
  std::string text = std::to_string(hint.range.min) + "..";
  if (hint.range.max != Interval::kNoBound) text += std::to_string(hint.range.max);
  if (hint.divisor != 1) text += " in steps of " + std::to_string(hint.divisor);
  return text;
}

namespace onnx {

const DimHint* DimHints::Use(std::string_view name) {
  const DimHint* found = nullptr;
  for (size_t i = 0; i < hints_.size(); ++i) {
    if (hints_[i].name != name) continue;
    used_[i] = true;
    found = &hints_[i];  // of several the last counts
  }
  return found;
}

Result<const DimHint*> DimHints::Find(const std::string& dim_param, const std::string& input, int axis) {
  const DimHint* by_input = Use(input + "." + std::to_string(axis));
  const DimHint* by_name = dim_param.empty() ? nullptr : Use(dim_param);
  if (by_input == nullptr || by_name == nullptr) return by_input != nullptr ? by_input : by_name;
  if (Agree(*by_input, *by_name)) return by_name->range.min == by_name->range.max ? by_name : by_input;
  const auto text = [](const DimHint& hint) { return "--dim " + hint.name + "=" + ToString(hint); };
  return Fail(ErrorCode::kInvalidArgument, "dim " + std::to_string(axis) + " of input '" + input +
                                               "' cannot have both sizes: " + text(*by_input) + "; " + text(*by_name) +
                                               "; give one of them");
}

Status DimHints::CheckConstant(const std::string& input, int axis, int64_t size) {
  const DimHint* hint = Use(input + "." + std::to_string(axis));
  if (hint == nullptr || (size >= hint->range.min && size <= hint->range.max && size % hint->divisor == 0)) return {};
  return Fail(ErrorCode::kShapeMismatch, "dim " + std::to_string(axis) + " of input '" + input + "' is " +
                                             std::to_string(size) + " in the model; the hint says " + ToString(*hint));
}

Status DimHints::CheckAllUsed() const {
  for (size_t i = 0; i < hints_.size(); ++i) {
    if (used_[i]) continue;
    return Fail(ErrorCode::kInvalidArgument, "dim hint \"" + hints_[i].name +
                                                 "\": no input has a dim of this name; name a symbol of the model or "
                                                 "INPUT.AXIS");
  }
  return {};
}

}  // namespace onnx
}  // namespace kiln

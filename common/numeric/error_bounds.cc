#include "common/numeric/error_bounds.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kiln {
namespace {

struct ClassInfo {
  double units;
  ErrorScope scope;
};
ClassInfo InfoOf(ErrorClass error_class) {
  switch (error_class) {
#define KILN_ERROR_CLASS(value, name, units, scope, doc) \
  case ErrorClass::k##name:                              \
    return {units, ErrorScope::k##scope};
#include "common/numeric/error_classes.def"
#undef KILN_ERROR_CLASS
  }
  return {};
}

struct ModeBounds {
  double margin, product_units, cap, floor;
};
ModeBounds BoundsOf(NumericMode mode) {
  const Tolerance most = ToleranceOf(mode);
  switch (mode) {
#define KILN_MODE_MARGIN(name, margin, product_units) \
  case NumericMode::k##name:                          \
    return {margin, product_units, most.rtol, most.atol / most.rtol};
#include "common/numeric/mode_margins.def"
#undef KILN_MODE_MARGIN
  }
  return {};
}

double UnitRoundoff(DType dtype) {
  if (dtype == DType::kF64) return 0x1p-53;
  if (dtype == DType::kF16) return 0x1p-11;
  return dtype == DType::kBF16 ? 0x1p-8 : 0x1p-24;
}

// Sums of 16-bit floats are kept in f32.
double AccumulatorRoundoff(DType dtype) {
  return std::min(UnitRoundoff(dtype), 0x1p-24);
}

double SmallestNormal(DType dtype) {
  if (dtype == DType::kF64) return std::numeric_limits<double>::min();
  return dtype == DType::kF16 ? 0x1p-14 : static_cast<double>(std::numeric_limits<float>::min());
}

struct Error {
  double relative = 0;
  ErrorScope scope = ErrorScope::kBits;
  double coarsest = 0;  // largest roundoff of a 16-bit result upstream
};
Error Widest(Error a, Error b) {
  return {std::max(a.relative, b.relative), std::max(a.scope, b.scope), std::max(a.coarsest, b.coarsest)};
}

// Walks a function's regions in order of execution.
class Propagation {
 public:
  Propagation(const Program& program, std::span<const int64_t> symbols, const ModeBounds& mode)
      : program_(program),
        function_(program.entry()),
        symbols_(symbols),
        mode_(mode),
        errors_(function_.values.size()) {
    WalkRegion(0);
  }

  ErrorBound BoundOf(ValueId value) const {
    const Error& error = errors_[static_cast<size_t>(value)];
    const DType dtype = function_.values[static_cast<size_t>(value)].desc.dtype;
    if (!IsFloat(dtype)) return {ErrorScope::kEqual, 0, 0, 0};
    if (error.scope <= ErrorScope::kEqual) return {error.scope, 0, 0, 0};
    const double most = std::max(mode_.cap, kHalfRoundoffsMax * error.coarsest);
    return {error.scope, std::min(mode_.margin * error.relative, most) + 2 * UnitRoundoff(dtype),
            error.scope == ErrorScope::kRow ? mode_.floor : 0, SmallestNormal(dtype)};
  }

 private:
  const Value& ValueOf(ValueId id) const { return function_.values[static_cast<size_t>(id)]; }

  double Length(const Dim& dim) const {
    std::vector<int64_t> known(symbols_.begin(), symbols_.end());
    for (SymbolId symbol : program_.symbols.SymbolsOf(dim))
      if (static_cast<size_t>(symbol) >= known.size() || known[static_cast<size_t>(symbol)] < 0)
        return static_cast<double>(kUnknownLength);
    const Result<int64_t> value = program_.symbols.Evaluate(dim, known);
    return static_cast<double>(value.has_value() ? std::max<int64_t>(*value, 1) : kUnknownLength);
  }
  // Product of the dims from `first` on.
  double Elements(const std::vector<ValueId>& values, size_t index, size_t first = 0) const {
    if (index >= values.size() || values[index] == kNoValue) return 1;
    const TensorDesc& desc = ValueOf(values[index]).desc;
    if (!desc.has_rank()) return static_cast<double>(kUnknownLength);
    double elements = 1;
    for (size_t d = first; d < desc.dims->size(); ++d) elements *= Length((*desc.dims)[d]);
    return elements;
  }
  double LastDim(const Node& node, size_t input) const {
    if (input >= node.inputs.size() || node.inputs[input] == kNoValue) return 0;
    const TensorDesc& desc = ValueOf(node.inputs[input]).desc;
    if (!desc.has_rank()) return static_cast<double>(kUnknownLength);
    return desc.dims->empty() ? 1 : Length(desc.dims->back());
  }

  // How many terms one element of the result is the sum of, at most.
  double TermsOf(const Node& node, ErrorClass error_class) const {
    switch (error_class) {
      case ErrorClass::kMove:
      case ErrorClass::kPick:
      case ErrorClass::kProduct:
      case ErrorClass::kAddition:
      case ErrorClass::kExponential:
      case ErrorClass::kFunction:
        return 0;
      case ErrorClass::kReduction: {
        const OpFamily family = OpInfo(node.op).family;
        const bool shrinks = family == OpFamily::kReduction || family == OpFamily::kPooling;
        return node.op == TensorOp::kResize ? 16 : Elements(node.inputs, 0) / (shrinks ? Elements(node.outputs, 0) : 1);
      }
      case ErrorClass::kNormalization:
        return Elements(node.inputs, 0, 1);
      case ErrorClass::kContraction:
        if (node.op == TensorOp::kMatMul) return LastDim(node, 0);
        if (node.op == TensorOp::kConv) return Elements(node.inputs, 1, 1);
        return std::max(Elements(node.inputs, 0), Elements(node.inputs, 1));
      case ErrorClass::kRecurrent:
        return LastDim(node, 1) + LastDim(node, 2);
    }
    return 0;
  }

  Error OwnError(const Node& node, DType dtype, Error inputs) const {
    const ErrorClass error_class = ErrorClassOf(OpInfo(node.op));
    const ClassInfo info = InfoOf(error_class);
    ErrorScope scope = std::max(info.scope, inputs.scope);
    // A sum of inexact terms, and functions of them, are relative to the terms.
    const bool may_cancel = error_class == ErrorClass::kAddition || error_class == ErrorClass::kExponential;
    if (may_cancel && inputs.scope >= ErrorScope::kElement) scope = ErrorScope::kRow;
    double own = info.units * UnitRoundoff(dtype);
    const double terms = TermsOf(node, error_class);
    own += std::sqrt(terms) * AccumulatorRoundoff(dtype);
    if (error_class == ErrorClass::kContraction || error_class == ErrorClass::kRecurrent)
      own += mode_.product_units * 0x1p-24;
    if (error_class == ErrorClass::kRecurrent)
      own *= std::sqrt(Elements(node.inputs, 0) / std::max(1.0, LastDim(node, 0)));
    const double roundoff = UnitRoundoff(dtype);
    const bool coarse = info.units > 0 && roundoff > AccumulatorRoundoff(dtype);
    return {inputs.relative + own, scope, std::max(inputs.coarsest, coarse ? roundoff : 0)};
  }

  Error& At(ValueId id) { return errors_[static_cast<size_t>(id)]; }

  void WalkRegion(RegionId id) {
    for (const Node& node : function_.regions[static_cast<size_t>(id)].nodes) {
      Error inputs;
      for (ValueId input : node.inputs)
        if (input != kNoValue && IsFloat(ValueOf(input).desc.dtype)) inputs = Widest(inputs, At(input));
      if (!node.regions.empty()) {
        WalkRegions(node, inputs);
        continue;
      }
      for (ValueId output : node.outputs)
        if (output != kNoValue && IsFloat(ValueOf(output).desc.dtype))
          At(output) = OwnError(node, ValueOf(output).desc.dtype, inputs);
    }
  }

  void WalkRegions(const Node& node, Error inputs) {
    Error result;
    for (RegionId id : node.regions) {
      const Region& region = function_.regions[static_cast<size_t>(id)];
      for (ValueId input : region.inputs) At(input) = inputs;
      WalkRegion(id);
      for (ValueId output : region.outputs) result = Widest(result, At(output));
    }
    if (node.op != TensorOp::kIf) {
      // What one iteration adds, over the iterations; what one makes inexact, the next takes in.
      const double growth = std::max(0.0, result.relative - inputs.relative);
      result.relative += growth * static_cast<double>(kLoopIterationsMax);
      if (result.scope >= ErrorScope::kElement) result.scope = ErrorScope::kRow;
    }
    result = Widest(result, inputs);
    for (ValueId output : node.outputs)
      if (output != kNoValue) At(output) = result;
  }

  const Program& program_;
  const Function& function_;
  const std::span<const int64_t> symbols_;
  const ModeBounds& mode_;
  std::vector<Error> errors_;
};

}  // namespace

std::vector<ErrorBound> ValueErrorBounds(const Program& program, std::span<const int64_t> symbols, NumericMode mode) {
  const ModeBounds bounds = BoundsOf(mode);
  const Propagation propagation(program, symbols, bounds);
  std::vector<ErrorBound> result;
  for (size_t i = 0; i < program.entry().values.size(); ++i)
    result.push_back(propagation.BoundOf(static_cast<ValueId>(i)));
  return result;
}

Status RequireRepeatable(const Program& program) {
  const Node* random = program.FindRandomNode();
  if (random == nullptr) return {};
  return Fail(ErrorCode::kInvalidArgument,
              "node " + std::string(OpInfo(random->op).name) +
                  (random->name.empty() ? "" : " \"" + random->name + "\"") +
                  " draws random numbers: no two runs have the same values, so they cannot be compared");
}

std::vector<ErrorBound> OutputErrorBounds(const Program& program, std::span<const int64_t> symbols, NumericMode mode) {
  const ModeBounds bounds = BoundsOf(mode);
  const Propagation propagation(program, symbols, bounds);
  std::vector<ErrorBound> result;
  for (ValueId output : program.entry().regions[0].outputs) result.push_back(propagation.BoundOf(output));
  return result;
}

}  // namespace kiln

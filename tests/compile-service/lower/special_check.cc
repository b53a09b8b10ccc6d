#include "tests/compile-service/lower/special_check.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/bytecode/program_text.h"
#include "common/numeric/difference.h"
#include "common/segment/decisions.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln::testing {
namespace {

double SmallestDenormal(DType dtype) {
  if (dtype == DType::kF16) return 0x1p-24;
  return dtype == DType::kBF16 ? 0x1p-133 : 0x1p-149;
}

// The largest finite magnitude, 1 at least.
double Largest(const Tensor& tensor) {
  return DispatchDType(tensor.dtype(), [&]<class T>() {
    double largest = 1;
    if constexpr (!std::is_integral_v<T>) {
      for (const T& value : tensor.values<T>()) {
        const double magnitude = std::abs(static_cast<double>(static_cast<float>(value)));
        if (std::isfinite(magnitude)) largest = std::max(largest, magnitude);
      }
    }
    return largest;
  });
}

void MakePlain(Tensor& tensor) {
  constexpr double kSmallest = 0x1p-60;
  DispatchDType(tensor.dtype(), [&]<class T>() {
    if constexpr (!std::is_integral_v<T>) {
      for (T& value : tensor.values<T>()) {
        const double magnitude = std::abs(static_cast<double>(static_cast<float>(value)));
        const bool plain = std::isfinite(magnitude) && (magnitude == 0 || magnitude >= kSmallest);
        if (!plain) value = static_cast<T>(1.0f);
      }
    }
  });
}

// By element, where the rule compares by row: the largest element of a row does not hide the others.
ErrorBound ElementBound(ErrorBound bound, DType dtype) {
  if (bound.scope == ErrorScope::kRow) {
    bound.scope = ErrorScope::kElement;
    bound.floor = 1;  // of what functions cancel: x (1 + erf x)
  }
  bound.tiny = 4 * SmallestDenormal(dtype);
  return bound;
}

// The first zero whose sign differs.
std::optional<int64_t> OtherZero(const Tensor& want, const Tensor& got) {
  return DispatchDType(want.dtype(), [&]<class T>() -> std::optional<int64_t> {
    if constexpr (!std::is_integral_v<T>) {
      for (int64_t i = 0; i < want.ref.elements(); ++i) {
        const auto a = static_cast<double>(static_cast<float>(want.ref.as<T>()[i]));
        const auto b = static_cast<double>(static_cast<float>(got.ref.as<T>()[i]));
        if (a == 0 && b == 0 && std::signbit(a) != std::signbit(b)) return i;
      }
    }
    return std::nullopt;
  });
}

// The first elements of every input.
std::string OperandsText(std::span<const Tensor> inputs) {
  std::string text = "\ninputs:";
  for (const Tensor& input : inputs) {
    text += " " + input.dims().ToString() + "{";
    DispatchDType(input.dtype(), [&]<class T>() {
      for (int64_t i = 0; i < std::min<int64_t>(input.ref.elements(), 48); ++i) {
        std::ostringstream number;
        number.precision(9);
        if constexpr (std::is_integral_v<T>) {
          number << static_cast<int64_t>(input.ref.as<T>()[i]);
        } else {
          number << static_cast<double>(static_cast<float>(input.ref.as<T>()[i]));
        }
        text += (i > 0 ? " " : "") + number.str();
      }
    });
    text += "}";
  }
  return text;
}

class Comparison {
 public:
  Comparison(const Segment& segment, const SpecialCheckOptions& options)
      : segment_(segment),
        options_(options),
        behind_decision_(OutputsBehindDecisions(segment)),
        bounds_(OutputErrorBounds(segment.body, options.symbols, options.mode)) {}

  // Whether all agreed.
  bool Run(const lower::LoweredSegment& lowered, const LoadedProgram& body, CompiledRunner& runner) {
    std::vector<Tensor> inputs = options_.inputs;
    for (int round = 0; round < options_.rounds; ++round) {
      SpecialValues values(options_.seed, round, options_.magnitudes);
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (options_.filled[i]) values.Fill(inputs[i], options_.zeros.empty() || options_.zeros[i]);
        if (!options_.plain.empty() && options_.plain[i]) MakePlain(inputs[i]);
      }
      if (!RunOnce(lowered, body, runner, inputs, round)) return false;
    }
    return true;
  }

 private:
  bool RunOnce(const lower::LoweredSegment& lowered, const LoadedProgram& body, CompiledRunner& runner,
               const std::vector<Tensor>& inputs, int round) {
    std::vector<TensorRef> refs, weights;
    for (size_t i = 0; i < inputs.size(); ++i)
      (i < static_cast<size_t>(segment_.runtime_inputs) ? refs : weights).push_back(inputs[i].ref);
    const std::string what = "round " + std::to_string(round) + " of seed " + std::to_string(options_.seed) + ", " +
                             std::string(InfoOf(options_.target).name) + ", mode " +
                             std::to_string(static_cast<int>(options_.mode)) + ", weights " +
                             std::string(WeightFormText(options_.form));
    const Result<std::vector<Tensor>> want = RunSegment(vm_, body, segment_, refs, weights, {});
    const int lanes = InfoOf(options_.target).f32_lanes();
    const Result<std::vector<Tensor>> got =
        RunLowered(lowered, options_.symbols, refs, weights, lanes, runner.runner());
    if (want.has_value() != got.has_value()) {
      ADD_FAILURE() << what << ": the interpreter " << (want ? "answers" : "refuses: " + ToString(want.error()))
                    << ", the plan " << (got ? "answers" : "refuses: " + ToString(got.error())) << "\n"
                    << Describe(lowered);
      return false;
    }
    if (!want) return true;
    for (size_t o = 0; o < want->size(); ++o) {
      if (behind_decision_[o]) continue;
      const std::string difference = Difference((*want)[o], (*got)[o], BoundAt(o, inputs));
      if (difference.empty()) continue;
      ADD_FAILURE() << what << ", output " << o << " " << difference << OperandsText(inputs) << "\n"
                    << Describe(lowered);
      return false;
    }
    return true;
  }

  // Sums are relative to their terms, which a row of numbers that are none shows nothing of.
  ErrorBound BoundAt(size_t output, const std::vector<Tensor>& inputs) const {
    ErrorBound bound = bounds_[output];
    if (options_.elementwise || bound.scope != ErrorScope::kRow) return bound;
    double terms = 32;
    for (const Tensor& input : inputs) terms *= Largest(input);
    bound.floor = std::max(bound.floor, terms);
    return bound;
  }

  std::string Difference(const Tensor& want, const Tensor& got, const ErrorBound& bound) const {
    if (const std::optional<std::string> difference = FirstDifference(want.ref, got.ref, bound)) return *difference;
    if (!options_.elementwise) return "";
    const ErrorBound by_element = ElementBound(bound, want.dtype());
    if (const std::optional<std::string> difference = FirstDifference(want.ref, got.ref, by_element))
      return *difference;
    const std::optional<int64_t> zero = OtherZero(want, got);
    return zero ? "has a zero of the other sign at [" + std::to_string(*zero) + "]" : "";
  }

  const Segment& segment_;
  const SpecialCheckOptions& options_;
  const std::vector<bool> behind_decision_;
  const std::vector<ErrorBound> bounds_;
  VmContext vm_;
};

}  // namespace

SpecialOutcome CheckSpecials(const Segment& segment, const SpecialCheckOptions& options, CompiledRunner& runner) {
  lower::LowerRequest request{segment, options.target, options.mode, options.symbols, {}, options.form};
  for (int64_t value : options.symbols) {
    const auto kind = value < 0 ? lower::SymbolChoice::Kind::kFree : lower::SymbolChoice::Kind::kExact;
    request.symbols.push_back({kind, value, value, 1});
  }
  const Result<lower::LoweredSegment> lowered = LowerSegment(request);
  if (!lowered || lowered->coverage.reference_nodes > 0) return SpecialOutcome::kNoKernel;
  const Result<std::shared_ptr<const LoadedProgram>> body = LoadSegmentBody(segment);
  if (!body) {
    ADD_FAILURE() << ToString(body.error());
    return SpecialOutcome::kFailed;
  }
  return Comparison(segment, options).Run(*lowered, **body, runner) ? SpecialOutcome::kCompared
                                                                    : SpecialOutcome::kFailed;
}

}  // namespace kiln::testing

#include "tests/compile-service/lower/check_program.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "common/bytecode/program_text.h"
#include "common/segment/decisions.h"
#include "common/segment/shape_walk.h"
#include "vm-worker/interp/interpreter.h"

namespace kiln::testing {
namespace {

std::string ShapeText(std::span<const int64_t> values) {
  std::string text;
  for (int64_t value : values) text += " " + std::to_string(value);
  return text;
}

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}

  Tensor Fill(const TensorDesc& desc, const SymbolTable& symbols, std::span<const int64_t> values, float scale) {
    Dims dims;
    for (Dim dim : *desc.dims) dims.push_back(*symbols.Evaluate(dim, values));
    Tensor tensor = Tensor::Zeros(desc.dtype, dims);
    std::uniform_real_distribution<float> number(-scale, scale);
    std::uniform_int_distribution<int64_t> integer(0, 3);
    // Bytes take all their values, as their products do; other integers stay small enough to be indices.
    DispatchDType(desc.dtype, [&]<class T>() {
      for (T& v : tensor.values<T>()) {
        if constexpr (std::is_same_v<T, bool>) {
          v = integer(engine_) > 1;
        } else if constexpr (std::is_integral_v<T>) {
          v = static_cast<T>(sizeof(T) == 1 ? engine_() : static_cast<uint64_t>(integer(engine_)));
        } else {
          v = static_cast<T>(number(engine_));
        }
      }
    });
    return tensor;
  }

 private:
  std::mt19937 engine_;
};

bool Close(double a, double b, double tolerance) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) == std::isnan(b);
  if (a == b) return true;
  return std::abs(a - b) <= tolerance * (1 + std::abs(b));
}

// One unit in the last place: a value may be rounded from either side.
constexpr double kF16Unit = 0x1p-10, kBF16Unit = 0x1p-7;

void ExpectSame(const Tensor& got, const Tensor& want, double tolerance, const std::string& what) {
  ASSERT_EQ(got.dtype(), want.dtype()) << what;
  ASSERT_EQ(got.dims(), want.dims()) << what;
  for (int64_t i = 0; i < want.ref.elements(); ++i) {
    if (want.dtype() == DType::kF16 || want.dtype() == DType::kBF16) {
      const bool is_f16 = want.dtype() == DType::kF16;
      const auto value = [&](const Tensor& t) {
        return is_f16 ? static_cast<float>(t.ref.as<Float16>()[i]) : static_cast<float>(t.ref.as<BFloat16>()[i]);
      };
      ASSERT_TRUE(Close(value(got), value(want),
                        tolerance == 0 ? 0
                        : is_f16       ? kF16Unit
                                       : kBF16Unit))
          << what << ": element " << i << " is " << value(got) << ", not " << value(want);
    } else if (IsFloat(want.dtype())) {
      const auto value = [&](const Tensor& t) {
        return want.dtype() == DType::kF32 ? static_cast<double>(t.ref.as<float>()[i]) : t.ref.as<double>()[i];
      };
      const double g = value(got), w = value(want);
      ASSERT_TRUE(Close(g, w, tolerance))
          << what << ": element " << i << " of " << want.dims().ToString() << " is " << g << ", not " << w;
    } else {
      const auto size = static_cast<size_t>(DTypeBytes(want.dtype()));
      ASSERT_EQ(std::memcmp(got.ref.as<char>() + i * static_cast<int64_t>(size),
                            want.ref.as<char>() + i * static_cast<int64_t>(size), size),
                0)
          << what << ": element " << i;
    }
  }
}

// One segment with one set of weights.
class Checker {
 public:
  Checker(const Segment& segment, const CheckOptions& options)
      : segment_(segment), options_(options), random_(7), behind_decision_(OutputsBehindDecisions(segment)) {
    const Result<std::shared_ptr<const LoadedProgram>> body = LoadSegmentBody(segment);
    EXPECT_TRUE(body.has_value()) << (body ? "" : ToString(body.error()));
    if (body) body_ = *body;
    weight_refs_ = options.weights;
    for (int w = 0; w < segment.weight_count() && options.weights.empty(); ++w) {
      weights_.push_back(random_.Fill(segment.input(segment.runtime_inputs + w), segment.body.symbols, {}, 0.5f));
      weight_refs_.push_back(weights_.back().ref);
    }
  }

  // Symbol values of a call, -1 for those known only inside.
  std::vector<int64_t> Symbols(const std::vector<int64_t>& shape) const {
    std::vector<int64_t> values;
    size_t next = 0;
    for (const SymbolSource& source : segment_.symbols) {
      const bool given = source.kind != SymbolSource::Kind::kValueDim;
      values.push_back(given ? shape.at(next++) : -1);
    }
    return values;
  }

  // Within a factor of two around the hints, and multiples of a power of two that divides them.
  static lower::SymbolChoice Around(int64_t value) {
    if (value < 0) return {};
    const int64_t divisor = value == 0 ? 1 : std::min<int64_t>(value & -value, 16);
    return {lower::SymbolChoice::Kind::kRange, value / 2, 2 * value + 1, divisor};
  }

  Result<lower::LoweredSegment> LowerRange(Target target, const std::vector<int64_t>& hints) const {
    lower::LowerRequest request{segment_, target, options_.mode, hints, {}, options_.form};
    for (int64_t value : hints) request.symbols.push_back(Around(value));
    return AsReceived(LowerSegment(request));
  }

  Result<lower::LoweredSegment> Lower(Target target, const std::vector<int64_t>& hints, bool exact) const {
    lower::LowerRequest request{segment_, target, options_.mode, hints, {}, options_.form};
    if (exact) {
      for (int64_t value : hints) {
        const auto kind = value < 0 ? lower::SymbolChoice::Kind::kFree : lower::SymbolChoice::Kind::kExact;
        request.symbols.push_back({kind, value, value, 1});
      }
    }
    return AsReceived(LowerSegment(request));
  }

  // What runs is what a worker would receive.
  Result<lower::LoweredSegment> AsReceived(Result<lower::LoweredSegment> made) const {
    ASSIGN_OR_RETURN(lower::LoweredSegment lowered, std::move(made));
    lowered.plan.kernels.resize(lowered.specs.size());
    for (size_t k = 0; k < lowered.specs.size(); ++k) {
      lowered.plan.kernels[k] = ir::ComputeKernelKey(lowered.specs[k], lowered.plan.target, Digest{});
    }
    if (Status status = VerifyPlan(lowered.plan, segment_); !status) return FailIn("VerifyPlan", status.error());
    Result<Plan> decoded = DecodePlan(EncodePlan(lowered.plan));
    if (!decoded) return FailIn("DecodePlan", decoded.error());
    lowered.plan = std::move(*decoded);
    return lowered;
  }

  void Compare(const lower::LoweredSegment& lowered, Target target, const std::vector<int64_t>& values,
               const std::string& what) {
    std::vector<Tensor> inputs;
    std::vector<TensorRef> refs;
    for (int i = 0; i < segment_.runtime_inputs; ++i) {
      inputs.push_back(random_.Fill(segment_.input(i), segment_.body.symbols, values, options_.input_scale));
      refs.push_back(inputs.back().ref);
    }
    std::vector<int64_t> parameters(static_cast<size_t>(segment_.parameters));
    for (size_t s = 0; s < segment_.symbols.size(); ++s) {
      if (segment_.symbols[s].kind == SymbolSource::Kind::kParameter)
        parameters[static_cast<size_t>(segment_.symbols[s].index)] = values[s];
    }
    const Result<std::vector<Tensor>> want = RunSegment(vm_, *body_, segment_, refs, weight_refs_, parameters);
    ASSERT_TRUE(want.has_value()) << what << ": " << ToString(want.error());
    const int lanes = InfoOf(target).f32_lanes();
    const Result<std::vector<Tensor>> got = RunLowered(lowered, values, refs, weight_refs_, lanes,
                                                       options_.runner ? options_.runner(target) : NaiveRunner(lanes));
    ASSERT_TRUE(got.has_value()) << what << ": " << ToString(got.error()) << "\n" << Describe(lowered);
    ASSERT_EQ(got->size(), want->size());
    for (size_t o = 0; o < want->size(); ++o) {
      if (behind_decision_[o]) continue;  // an edge may be met from either side
      ExpectSame((*got)[o], (*want)[o], options_.tolerance,
                 what + ", output " + std::to_string(o) + "\n" + Describe(lowered));
    }
  }

 private:
  const Segment& segment_;
  const CheckOptions& options_;
  Random random_;
  const std::vector<bool> behind_decision_;
  VmContext vm_;
  std::shared_ptr<const LoadedProgram> body_;
  std::vector<Tensor> weights_;
  std::vector<TensorRef> weight_refs_;
};

}  // namespace

namespace {

// Descs of every value by the shape rules, so that texts need not spell them out.
Status InferDescs(Program& program) {
  Function& function = program.functions.front();
  std::vector<std::optional<KnownValues>> known(function.values.size());
  for (Node& node : function.regions.front().nodes) {
    std::vector<const TensorDesc*> inputs;
    for (ValueId input : node.inputs)
      inputs.push_back(input < 0 ? nullptr : &function.values[static_cast<size_t>(input)].desc);
    InferContext context{program.symbols, node.op, node.attributes, program.constants, inputs};
    context.known = [&](int i) -> std::optional<KnownValues> {
      return node.inputs[static_cast<size_t>(i)] < 0 ? std::nullopt
                                                     : known[static_cast<size_t>(node.inputs[static_cast<size_t>(i)])];
    };
    context.known_floats = [&](int i) -> std::optional<std::vector<double>> {
      for (const Node& maker : function.regions.front().nodes) {
        if (maker.op != TensorOp::kConstant || maker.outputs[0] != node.inputs[static_cast<size_t>(i)]) continue;
        return ReadKnownFloats(program.constants[static_cast<size_t>(maker.attributes.Constant("value"))].tensor.ref,
                               limits::kShapeContentsMax);
      }
      return std::nullopt;
    };
    context.outputs.resize(node.outputs.size());
    RETURN_IF_ERROR(InferShapes(context));
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (node.outputs[o] < 0) continue;
      const auto value = static_cast<size_t>(node.outputs[o]);
      function.values[value].desc.dtype = context.outputs[o].dtype;
      function.values[value].desc.dims = context.outputs[o].dims;
      known[value] = context.known_outputs[o];
    }
    if (node.op == TensorOp::kConstant) {
      const Tensor& tensor = program.constants[static_cast<size_t>(node.attributes.Constant("value"))].tensor;
      known[static_cast<size_t>(node.outputs[0])] = ReadKnownValues(tensor.ref, limits::kShapeContentsMax);
    }
  }
  return {};
}

}  // namespace

Segment SegmentOf(std::string_view text) {
  Result<Program> program = ParseProgram(text);
  EXPECT_TRUE(program.has_value()) << (program ? "" : ToString(program.error()));
  if (!program) return {};
  const Status inferred = InferDescs(*program);
  EXPECT_TRUE(inferred.has_value()) << (inferred ? "" : ToString(inferred.error()));
  if (!inferred) return {};
  const std::vector<SegmentSite> sites = FindSegments(*program);
  EXPECT_EQ(sites.size(), 1u) << "the program is cut";
  if (sites.empty()) return {};
  Result<Segment> segment = CanonicalSegment(*program, sites[0]);
  EXPECT_TRUE(segment.has_value()) << (segment ? "" : ToString(segment.error()));
  return segment ? std::move(*segment) : Segment{};
}

lower::LoweredSegment CheckSegment(const Segment& segment, const CheckOptions& options) {
  Checker checker(segment, options);
  lower::LoweredSegment first;
  for (Target target : options.targets) {
    const std::string on = " on " + std::string(InfoOf(target).name);
    Result<lower::LoweredSegment> generic = checker.Lower(target, checker.Symbols(options.shapes.front()), false);
    if (!generic && options.accept_unsupported && generic.error().code == ErrorCode::kUnsupported) return first;
    EXPECT_TRUE(generic.has_value()) << (generic ? "" : ToString(generic.error()));
    if (!generic) return first;
    if (target == options.targets.front()) first = *generic;
    std::optional<lower::LoweredSegment> range;
    if (options.ranges) {
      Result<lower::LoweredSegment> made = checker.LowerRange(target, checker.Symbols(options.shapes.front()));
      EXPECT_TRUE(made.has_value()) << (made ? "" : ToString(made.error()));
      if (made) range = std::move(*made);
    }
    for (const std::vector<int64_t>& shape : options.shapes) {
      const std::vector<int64_t> values = checker.Symbols(shape);
      if (range && GuardAdmits(range->plan.guard, range->plan.symbols, values))
        checker.Compare(*range, target, values, "range plan at" + ShapeText(shape) + on);
      if (GuardAdmits(generic->plan.guard, generic->plan.symbols, values)) {
        checker.Compare(*generic, target, values, "generic plan at" + ShapeText(shape) + on);
      } else {
        EXPECT_NE(shape, options.shapes.front()) << "the guard refuses its own hints";
      }
      if (!options.exact) continue;
      const Result<lower::LoweredSegment> exact = checker.Lower(target, values, true);
      if (!exact && options.accept_unsupported && exact.error().code == ErrorCode::kUnsupported) continue;
      EXPECT_TRUE(exact.has_value()) << ShapeText(shape) << ": " << (exact ? "" : ToString(exact.error()));
      if (exact) checker.Compare(*exact, target, values, "exact plan at" + ShapeText(shape) + on);
      if (::testing::Test::HasFatalFailure()) return first;
    }
  }
  return first;
}

}  // namespace kiln::testing

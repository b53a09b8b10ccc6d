// Every op that has a kernel, in every element type that it has one for, on special values: the plan gives what the
// interpreter gives.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>

#include "common/numeric/error_bounds.h"
#include "tests/common/ops/typed_case.h"
#include "tests/compile-service/lower/special_check.h"

namespace kiln::testing {
namespace {

constexpr DType kTypes[] = {
#define KILN_DTYPE(value, name, text, type, bytes, kind) DType::k##name,
#include "common/tensor/dtypes.def"
#undef KILN_DTYPE
};

uint64_t BaseSeed() {
  const char* seed = std::getenv("KILN_TEST_SEED");
  return seed == nullptr ? 1 : std::strtoull(seed, nullptr, 10);
}

// Whether all inputs with more than one element have the same dims.
bool HasOneShape(const OpCase& op) {
  std::set<std::string> shapes;
  for (const std::optional<TensorRef>& input : op.inputs)
    if (input && input->elements() > 1) shapes.insert(input->dims.ToString());
  return shapes.size() == 1;
}

// Whole vectors and tails of every target.
void Enlarge(TypedCase& typed) {
  for (std::optional<TensorRef>& input : typed.op.inputs) {
    if (!input || input->elements() <= 1) continue;
    typed.owned.push_back(Tensor::Zeros(input->dtype, Dims{5, 37}));
    input = typed.owned.back().ref;
  }
}

Magnitudes MagnitudesOf(const TensorOpInfo& info) {
  if (info.op == TensorOp::kReduceProd || info.op == TensorOp::kCumProd) return Magnitudes::kNearOne;
  return ErrorClassOf(info) <= ErrorClass::kFunction ? Magnitudes::kAll : Magnitudes::kOrdinary;
}

// Modes share most kernels.
CompiledRunner& RunnerOf(Target target) {
  static std::map<Target, CompiledRunner> runners;
  return runners.try_emplace(target, target).first->second;
}

class OpCheck {
 public:
  OpCheck(Target target, NumericMode mode) : target_(target), mode_(mode), runner_(RunnerOf(target)) {}

  void Run(const FileCase& file_case) {
    if (file_case.op.inputs.size() <= TypedInput(file_case.op.op)) return;
    if (!file_case.op.inputs[TypedInput(file_case.op.op)]) return;
    for (DType type : kTypes) {
      const DType stated = file_case.op.inputs[TypedInput(file_case.op.op)]->dtype;
      for (bool alone : {false, true}) {
        if (alone && type == stated) continue;
        TypedCase typed = InType(file_case, type, alone);
        if (!Runs(typed)) continue;
        if (OpInfo(typed.op.op).family == OpFamily::kElementwise && HasOneShape(typed.op)) Enlarge(typed);
        for (bool weights : {false, true}) {
          SCOPED_TRACE(std::string(DTypeName(type)) + (weights ? " with weights, " : ", ") + file_case.text);
          Check(typed, weights);
        }
      }
    }
  }

  const std::set<TensorOp>& compared() const { return compared_; }

 private:
  void Check(const TypedCase& typed, bool weights) {
    const Result<std::vector<TensorDesc>> outputs = InferOp(typed.op);
    if (!outputs) return;
    const Program program = OneNode(typed, *outputs, weights);
    if (!VerifyProgram(program)) return;
    const std::vector<SegmentSite> sites = FindSegments(program);
    if (sites.size() != 1) return;
    const Result<Segment> segment = CanonicalSegment(program, sites[0]);
    if (!segment || segment->symbols.size() > 0 || (weights && segment->weight_count() == 0)) return;
    const TensorOpInfo& info = OpInfo(typed.op.op);
    const bool by_element = info.family == OpFamily::kElementwise;
    SpecialCheckOptions options{.target = target_, .mode = mode_, .seed = BaseSeed()};
    options.rounds = mode_ == NumericMode::kDefault ? 40 : 15;
    options.elementwise = by_element;
    options.magnitudes = MagnitudesOf(info);
    const bool divides = typed.op.op == TensorOp::kDiv || typed.op.op == TensorOp::kMod;
    for (InputRole role : {InputRole::kRunTime, InputRole::kWeight}) {
      for (size_t i = 0; i < typed.op.inputs.size(); ++i) {
        if (RoleOf(typed, i, weights) != role) continue;
        options.inputs.push_back(MakeContiguous(*typed.op.inputs[i]));
        // Indices, axes and sizes stay.
        options.filled.push_back(by_element || i == TypedInput(typed.op.op) || IsFloat(typed.op.inputs[i]->dtype));
        options.zeros.push_back(!divides || i == 0);
        // What is multiplied with pads or left out, and what is scaled before the run.
        const bool folded = info.family == OpFamily::kConvolution || info.op == TensorOp::kGemm;
        options.plain.push_back(folded && role == InputRole::kWeight);
      }
    }
    if (CheckSpecials(*segment, options, runner_) == SpecialOutcome::kNoKernel) return;
    compared_.insert(typed.op.op);
    if (!divides || IsFloat(options.inputs[0].dtype())) return;
    options.zeros.assign(options.inputs.size(), true);  // both refuse
    CheckSpecials(*segment, options, runner_);
  }

  const Target target_;
  const NumericMode mode_;
  CompiledRunner& runner_;
  std::set<TensorOp> compared_;
};

struct Place {
  const char* name;
  size_t target;  // of HostTargets, from the best one; the last one where there are fewer
  NumericMode mode;
};
constexpr Place kPlaces[] = {{"Default", 0, NumericMode::kDefault},
                             {"Strict", 0, NumericMode::kStrict},
                             {"Fast", 0, NumericMode::kFast},
                             {"DefaultOfTheLowestRung", 99, NumericMode::kDefault}};

class SpecialValuesTest : public ::testing::TestWithParam<Place> {};

TEST_P(SpecialValuesTest, PlansOfOneOpGiveWhatTheInterpreterGives) {
  const std::vector<Target> targets = HostTargets();
  if (targets.empty()) GTEST_SKIP() << "no target for this host";
  OpCheck check(targets[std::min(GetParam().target, targets.size() - 1)], GetParam().mode);
  const char* only = std::getenv("KILN_TEST_OP");
  for (const FileCase& file_case : ReadCaseFile(KILN_SOURCE_DIR "/tests/common/ops/cases.txt")) {
    if (only == nullptr || OpInfo(file_case.op.op).name == only) check.Run(file_case);
  }
  constexpr size_t kOpsWithKernels = 90;
  if (only == nullptr) {
    EXPECT_GE(check.compared().size(), kOpsWithKernels);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, SpecialValuesTest, ::testing::ValuesIn(kPlaces),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kiln::testing

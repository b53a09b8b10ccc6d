#include "compile-service/validate/validate_kernel.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>

#include "common/base/checked_math.h"
#include "common/native/code_mapping.h"
#include "common/native/guarded_memory.h"
#include "compile-service/validate/column_evaluator.h"
#include "compile-service/validate/pointer_extents.h"
#include "compile-service/validate/trial_values.h"

namespace kiln {
namespace {

constexpr int64_t kTrialBytesMax = int64_t{256} << 20;
constexpr int64_t kFirstTrialOperationsMax = 4'000'000;  // the observed call is tried more than those around it
constexpr int64_t kTrialOperationsMax = 1'000'000;
constexpr int kSampledParts = 3;
// Products of a recurrence are evaluated faster than other arithmetic; its errors show after a few steps.
constexpr int64_t kRecurrenceFactor = 8, kRecurrenceStepsMin = 5;
constexpr double kTolerance = 2e-4;      // relative to 1 + |reference|; inputs are of size 1
constexpr double kHalfTolerance = 2e-2;  // f16 and bf16 storage
constexpr double kDecisionShareMax =
    0.01;  // elements that may differ where a comparison or rounding follows float arithmetic

template <class T>
bool Close(T expected, T actual) {
  if constexpr (std::is_integral_v<T>) {
    return expected == actual;
  } else {
    const double a = static_cast<double>(static_cast<float>(expected)),
                 b = static_cast<double>(static_cast<float>(actual));
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    if (std::isinf(a) || std::isinf(b))
      return a == b || (std::abs(a) > 1e38 && std::abs(b) > 1e38 && (a > 0) == (b > 0));
    return std::abs(a - b) <= (sizeof(T) == 2 ? kHalfTolerance : kTolerance) * (1 + std::abs(a));
  }
}

// Whether the arithmetic holds a step where a tiny difference becomes a large one.
bool HasDecision(const ir::ScalarProgram& program) {
  for (const ir::ScalarNode& node : program) switch (node.op) {
      case ir::ScalarOp::kFloor:
      case ir::ScalarOp::kCeil:
      case ir::ScalarOp::kRound:
      case ir::ScalarOp::kLess:
      case ir::ScalarOp::kLessEqual:
      case ir::ScalarOp::kEqual:
      case ir::ScalarOp::kConvert:
      case ir::ScalarOp::kRoundF16:
      case ir::ScalarOp::kRoundBF16:
      case ir::ScalarOp::kIsNaN:
        return true;
      case ir::ScalarOp::kLoad:
      case ir::ScalarOp::kConstant:
      case ir::ScalarOp::kStageResult:
      case ir::ScalarOp::kAccumulator:
      case ir::ScalarOp::kCoordinate:
      case ir::ScalarOp::kArgument:
      case ir::ScalarOp::kAdd:
      case ir::ScalarOp::kSub:
      case ir::ScalarOp::kMul:
      case ir::ScalarOp::kDiv:
      case ir::ScalarOp::kMin:
      case ir::ScalarOp::kMax:
      case ir::ScalarOp::kPow:
      case ir::ScalarOp::kFma:
      case ir::ScalarOp::kNeg:
      case ir::ScalarOp::kAbs:
      case ir::ScalarOp::kSqrt:
      case ir::ScalarOp::kExp:
      case ir::ScalarOp::kLog:
      case ir::ScalarOp::kTanh:
      case ir::ScalarOp::kErf:
      case ir::ScalarOp::kSigmoid:
      case ir::ScalarOp::kSin:
      case ir::ScalarOp::kCos:
      case ir::ScalarOp::kAnd:
      case ir::ScalarOp::kOr:
      case ir::ScalarOp::kNot:
      case ir::ScalarOp::kSelect:
        break;
    }
  return false;
}

bool HasDecision(const ir::KernelSpec& spec) {
  if (const auto* nest = std::get_if<ir::LoopNestSpec>(&spec.kernel)) return HasDecision(nest->body);
  if (const auto* product = std::get_if<ir::ContractionSpec>(&spec.kernel)) return HasDecision(product->epilogue);
  if (const auto* window = std::get_if<ir::WindowSpec>(&spec.kernel)) return HasDecision(window->epilogue);
  if (const auto* attention = std::get_if<ir::AttentionSpec>(&spec.kernel)) return HasDecision(attention->scores);
  const auto& recurrent = std::get<ir::RecurrentSpec>(spec.kernel);
  return std::ranges::any_of(recurrent.steps, [](const auto& stage) { return HasDecision(stage.body); });
}

// Parts [begin, end) of the range to try.
std::vector<std::pair<int64_t, int64_t>> PartsOf(int64_t range, int64_t unit_cost, int64_t operations_max,
                                                 std::mt19937_64& random) {
  if (range <= 0) return {};
  if (range <= operations_max / unit_cost) return {{0, range}};
  const int64_t length = std::max<int64_t>(1, operations_max / unit_cost / kSampledParts);
  std::vector<std::pair<int64_t, int64_t>> parts = {{0, std::min(length, range)},
                                                    {std::max<int64_t>(0, range - length), range}};
  for (int i = 2; i < kSampledParts; ++i) {
    const auto begin = static_cast<int64_t>(random() % static_cast<uint64_t>(range));
    parts.emplace_back(begin, std::min(begin + length, range));
  }
  return parts;
}

// Elements that are compared one by one only where the bytes of their run differ.
constexpr int64_t kComparedRun = 1024;

Status CompareBuffers(const PointerExtent& extent, const void* expected, const void* actual, bool decision,
                      const std::string& where) {
  return DispatchDType(extent.dtype, [&]<class T>() -> Status {
    int64_t different = 0, first = -1;
    const T* a = static_cast<const T*>(expected);
    const T* b = static_cast<const T*>(actual);
    for (int64_t run = 0; run < extent.elements; run += kComparedRun) {
      const int64_t end = std::min(run + kComparedRun, extent.elements);
      if (std::memcmp(a + run, b + run, static_cast<size_t>(end - run) * sizeof(T)) == 0) continue;
      for (int64_t i = run; i < end; ++i)
        if (!Close(a[i], b[i]) && ++different == 1) first = i;
    }
    const double allowed = decision ? kDecisionShareMax * static_cast<double>(extent.elements) + 1 : 0;
    if (static_cast<double>(different) <= allowed) return {};
    return Fail(ErrorCode::kCompileFailed,
                where + ": element " + std::to_string(first) + " is " +
                    std::to_string(static_cast<double>(static_cast<float>(b[first]))) + ", the reference gives " +
                    std::to_string(static_cast<double>(static_cast<float>(a[first]))) + " (" +
                    std::to_string(different) + " of " + std::to_string(extent.elements) + " differ)");
  });
}

// What one pointer names, over all trials of a kernel.
struct TrialBuffer {
  PointerExtent extent;
  bool special = false;
  std::unique_ptr<GuardedMemory> expected;  // of the reference; what the kernel only reads is shared with it, sealed
  std::unique_ptr<GuardedMemory> actual;    // where the kernel may write

  size_t bytes() const { return static_cast<size_t>(extent.elements * DTypeBytes(extent.dtype)); }
  void* pointer(const GuardedMemory& memory) const {
    return static_cast<char*>(memory.data()) + extent.before * DTypeBytes(extent.dtype);
  }
  // Inputs of an unchanged size are kept: weights are filled once.
  bool Holds(const PointerExtent& wanted, bool want_special) const {
    return expected != nullptr && !extent.written && !wanted.written && !special && !want_special &&
           extent.dtype == wanted.dtype && extent.elements == wanted.elements && extent.before == wanted.before;
  }
  // False when there is no memory.
  bool Fill(const PointerExtent& wanted, bool want_special, std::mt19937_64& random) {
    if (Holds(wanted, want_special)) return true;
    extent = wanted;
    special = want_special;
    const auto alignment = static_cast<size_t>(DTypeBytes(extent.dtype));  // exactly at the guard page
    expected = std::make_unique<GuardedMemory>(bytes(), alignment);
    actual.reset();
    if (expected->data() == nullptr) return false;
    FillRandom(extent, expected->data(), random, special);
    if (!extent.written) return expected->MakeReadOnly();
    actual = std::make_unique<GuardedMemory>(bytes(), alignment);
    if (actual->data() == nullptr) return false;
    std::memcpy(actual->data(), expected->data(), bytes());
    return true;
  }
};

// A recurrence too long for a trial is a recurrence of fewer steps.
std::vector<int64_t> Affordable(const ir::KernelSpec& spec, std::vector<int64_t> dims, int lanes, int64_t operations) {
  const auto* recurrent = std::get_if<ir::RecurrentSpec>(&spec.kernel);
  if (recurrent == nullptr || !recurrent->time.is_argument || dims.size() != static_cast<size_t>(spec.dims))
    return dims;
  const int64_t cost = UnitCost(spec, dims, lanes);
  int64_t& time = dims[static_cast<size_t>(recurrent->time.value)];
  if (cost > kRecurrenceFactor * operations)
    time = std::min(time,
                    std::max(kRecurrenceStepsMin, time * kRecurrenceFactor / std::max<int64_t>(1, cost / operations)));
  return dims;
}

struct Trial {
  const std::vector<int64_t>& dims;
  int64_t operations_max;
  bool special;
  std::string name;
};

class KernelTrials {
 public:
  KernelTrials(const ir::KernelSpec& spec, KilnKernel entry, int lanes, uint64_t seed)
      : spec_(spec), entry_(entry), lanes_(lanes), random_(seed), decision_(HasDecision(spec)) {}

  // Whether the call was compared; false when it needs too much memory.
  Result<bool> Run(const Trial& trial) {
    const std::vector<int64_t> trial_dims = Affordable(spec_, trial.dims, lanes_, trial.operations_max);
    ASSIGN_OR_RETURN(const std::vector<PointerExtent> extents, PointerExtents(spec_, trial_dims, lanes_));
    int64_t bytes = 0;
    for (const PointerExtent& extent : extents) bytes += extent.elements * DTypeBytes(extent.dtype);
    if (bytes > kTrialBytesMax) return false;
    buffers_.resize(extents.size());
    std::vector<void*> expected, actual;
    for (size_t i = 0; i < extents.size(); ++i) {
      TrialBuffer& buffer = buffers_[i];
      if (!buffer.Fill(extents[i], trial.special, random_)) return false;
      expected.push_back(buffer.pointer(*buffer.expected));
      actual.push_back(buffer.actual == nullptr ? expected.back() : buffer.pointer(*buffer.actual));
    }
    const KilnKernelArgs args{actual.data(), trial_dims.data(), nullptr};
    const int64_t range = ir::RangeOf(spec_, trial_dims, lanes_);
    for (const auto& [begin, end] :
         PartsOf(range, UnitCost(spec_, trial_dims, lanes_), trial.operations_max, random_)) {
      RETURN_IF_ERROR(EvaluateByColumns(spec_, expected, trial_dims, lanes_, begin, end));
      entry_(&args, begin, end);
    }
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const TrialBuffer& buffer = buffers_[i];
      if (buffer.actual == nullptr) continue;
      RETURN_IF_ERROR(CompareBuffers(buffer.extent, buffer.expected->data(), buffer.actual->data(), decision_,
                                     trial.name + ", pointer " + std::to_string(i)));
    }
    return true;
  }

 private:
  const ir::KernelSpec& spec_;
  const KilnKernel entry_;
  const int lanes_;
  std::mt19937_64 random_;
  const bool decision_;
  std::vector<TrialBuffer> buffers_;  // per pointer
};

}  // namespace

Result<uint32_t> ValidateKernel(const ir::KernelSpec& spec, std::span<const uint8_t> code, Target target,
                                std::span<const std::vector<int64_t>> trial_dims, uint64_t seed) {
  const std::vector<Target> host = HostTargets();
  if (host.empty() || !CanRun(host.front(), target)) return 0u;
  const KernelId id = HashBytes(code);
  const std::span<const uint8_t> blobs[] = {code};
  ASSIGN_OR_RETURN(auto mapping, CodeMapping::Map({&id, 1}, blobs, host.front()));
  KernelTrials trials(spec, mapping->entry(0), InfoOf(target).f32_lanes(), seed);
  uint32_t compared = 0;
  const auto run = [&](size_t t, int64_t operations_max, bool special) -> Status {
    ASSIGN_OR_RETURN(const bool ran,
                     trials.Run({trial_dims[t], operations_max, special,
                                 "trial " + std::to_string(t) + (special ? " with special values" : "")}));
    compared += ran ? 1 : 0;
    return {};
  };
  for (size_t t = 0; t < trial_dims.size(); ++t)
    RETURN_IF_ERROR(run(t, t == 0 ? kFirstTrialOperationsMax : kTrialOperationsMax, false));
  if (!trial_dims.empty()) RETURN_IF_ERROR(run(0, kTrialOperationsMax, true));
  return compared;
}

}  // namespace kiln

#include "compile-service/validate/validate_kernel.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include "common/base/checked_math.h"
#include "common/base/limits.h"
#include "common/native/code_mapping.h"
#include "common/native/guarded_memory.h"
#include "compile-service/ir/in_place.h"
#include "compile-service/validate/column_evaluator.h"
#include "compile-service/validate/differences.h"
#include "compile-service/validate/edge_trials.h"
#include "compile-service/validate/pointer_extents.h"
#include "compile-service/validate/trial_values.h"

namespace kiln {
namespace {

constexpr int64_t kTrialBytesMax = int64_t{256} << 20;
constexpr int64_t kFirstTrialOperationsMax = 4'000'000;  // the observed call is tried more than those around it
constexpr int64_t kTrialOperationsMax = 1'000'000;
constexpr int64_t kTableElementsMax = 1 << 20, kTableEntriesMin = 64;  // of tables that are read at positions
constexpr int64_t kInPlaceOperationsMax = 200'000;                     // the same calls once more
constexpr int kSampledParts = 3;
// Products of a recurrence are evaluated faster than other arithmetic; its errors show after a few steps.
constexpr int64_t kRecurrenceFactor = 8, kRecurrenceStepsMin = 5;
constexpr int64_t kTurnsMin = 64;
// Ways in which the reference is evaluated again where a kernel differs.
constexpr Leaning kLeanings[] = {Leaning::kUp, Leaning::kDown, Leaning::kMixed, Leaning::kMixedToo};

// Whether a pointer holds what others are multiplied with and summed.
bool IsFactor(const ir::KernelSpec& spec, int32_t pointer) {
  if (const auto* contraction = std::get_if<ir::ContractionSpec>(&spec.kernel))
    return contraction->b.pointer == pointer;
  if (const auto* window = std::get_if<ir::WindowSpec>(&spec.kernel))
    return window->weights && window->weights->pointer == pointer;
  if (const auto* attention = std::get_if<ir::AttentionSpec>(&spec.kernel)) return attention->k.pointer == pointer;
  if (const auto* recurrent = std::get_if<ir::RecurrentSpec>(&spec.kernel))
    for (const auto* stages : {&recurrent->before, &recurrent->steps, &recurrent->after})
      for (const ir::RecurrentStage& stage : *stages)
        if (stage.panels == pointer) return true;
  return false;
}

// Whether many values are multiplied with each other: what is infinite, or nothing, on the way depends on their order.
bool MultipliesMany(const ir::KernelSpec& spec) {
  const auto* nest = std::get_if<ir::LoopNestSpec>(&spec.kernel);
  return nest != nullptr && std::ranges::any_of(nest->stages, [](const ir::Stage& stage) {
           return stage.kind == ir::Stage::Kind::kReduce && stage.combine == ir::Combine::kProduct;
         });
}

// Large ones are beyond what exponentials take, but of one of two factors only, because products of two such values
// would cancel to less than their own rounding errors.
SpecialValues SpecialValuesOf(const ir::KernelSpec& spec, size_t pointer) {
  if (MultipliesMany(spec)) return {.largest = 1, .extremes = false};
  return {.largest = IsFactor(spec, static_cast<int32_t>(pointer)) ? 1.0 : 80.0};
}

using Parts = std::vector<std::pair<int64_t, int64_t>>;  // [begin, end) each

// Parts of the range to try, disjoint: in place no element can be made twice. None of an empty range.
Parts PartsOf(int64_t range, int64_t unit_cost, int64_t operations_max, std::mt19937_64& random) {
  if (range <= 0) return {};
  if (range <= operations_max / unit_cost) return {{0, range}};
  const int64_t length = std::max<int64_t>(1, operations_max / unit_cost / kSampledParts);
  Parts parts = {{0, std::min(length, range)}, {std::max<int64_t>(0, range - length), range}};
  for (int i = 2; i < kSampledParts; ++i) {
    const auto begin = static_cast<int64_t>(random() % static_cast<uint64_t>(range));
    parts.emplace_back(begin, std::min(begin + length, range));
  }
  std::ranges::sort(parts);
  int64_t done = 0;
  for (auto& [begin, end] : parts) {
    begin = std::max(begin, done);
    done = std::max(done, end);
  }
  std::erase_if(parts, [](const auto& part) { return part.first >= part.second; });
  return parts;
}

// Bytes before a buffer hold what no kernel leaves unnoticed: a NaN when it reads them, another value when it writes.
constexpr uint8_t kCanary = 0xff;

// What one pointer names, over all trials of a kernel.
struct TrialBuffer {
  PointerExtent extent;
  bool has_special = false;
  std::unique_ptr<GuardedMemory> expected;  // of the reference; what the kernel only reads is shared with it, sealed
  std::unique_ptr<GuardedMemory> actual;    // where the kernel may write
  std::vector<uint8_t> fill;                // what both began with

  size_t bytes() const { return static_cast<size_t>(extent.elements * DTypeBytes(extent.dtype)); }
  void* pointer(void* data) const { return static_cast<char*>(data) + extent.before * DTypeBytes(extent.dtype); }
  // Inputs of an unchanged size are kept: weights are filled once.
  bool Holds(const PointerExtent& wanted, const SpecialValues& special) const {
    return expected != nullptr && !extent.written && !wanted.written && !has_special && special.largest == 0 &&
           extent.dtype == wanted.dtype && extent.elements == wanted.elements && extent.before == wanted.before &&
           extent.entries == wanted.entries;
  }
  // False when there is no memory.
  bool Fill(const PointerExtent& wanted, const SpecialValues& special, std::mt19937_64& random) {
    if (Holds(wanted, special)) return true;
    extent = wanted;
    has_special = special.largest > 0;
    const auto alignment = static_cast<size_t>(DTypeBytes(extent.dtype));  // exactly at the guard page
    expected = std::make_unique<GuardedMemory>(bytes(), alignment);
    actual.reset();
    if (expected->data() == nullptr) return false;
    FillRandom(extent, expected->data(), random, special);
    std::ranges::fill(expected->before(), kCanary);
    if (!extent.written) return expected->MakeReadOnly();
    actual = std::make_unique<GuardedMemory>(bytes(), alignment);
    if (actual->data() == nullptr) return false;
    std::ranges::fill(actual->before(), kCanary);
    const auto* filled = static_cast<const uint8_t*>(expected->data());
    fill.assign(filled, filled + bytes());
    std::copy(fill.begin(), fill.end(), static_cast<uint8_t*>(actual->data()));
    return true;
  }
};

// Whether an argument is an extent or a stride of the nest itself.
bool ShapesNest(const ir::LoopNestSpec& nest, int32_t argument) {
  const ir::SpecInt wanted = ir::SpecInt::Argument(argument);
  const auto has = [&](const std::vector<ir::SpecInt>& list) { return std::ranges::count(list, wanted) > 0; };
  return has(nest.outer) || has(nest.reduce) || nest.inner == wanted ||
         std::ranges::any_of(nest.accesses, [&](const ir::Access& access) { return has(access.strides); });
}

// A table that is read at positions needs no more entries than make them differ.
std::vector<int64_t> WithSmallTables(const ir::LoopNestSpec& nest, std::vector<int64_t> dims) {
  for (const ir::ScalarNode& node : nest.body) {
    if (node.op != ir::ScalarOp::kLoadAt) continue;
    const ir::ScalarNode& extent = nest.body[static_cast<size_t>(node.b)];
    const ir::ScalarNode& stride = nest.body[static_cast<size_t>(node.c)];
    if (extent.op != ir::ScalarOp::kArgument || ShapesNest(nest, extent.index)) continue;
    const int64_t step =
        stride.op == ir::ScalarOp::kArgument ? dims[static_cast<size_t>(stride.index)] : stride.integer;
    int64_t& entries = dims[static_cast<size_t>(extent.index)];
    entries = std::min(entries, std::max(kTableEntriesMin, kTableElementsMax / std::max<int64_t>(1, std::abs(step))));
  }
  return dims;
}

// `result` begins with what `operand` holds, and the kernel finds both in one place. False when they do not fit.
bool ShareMemory(const TrialBuffer& operand, TrialBuffer& result) {
  const PointerExtent &from = operand.extent, &to = result.extent;
  if (operand.actual != nullptr || result.actual == nullptr) return false;
  if (from.elements != to.elements || from.before != to.before || operand.bytes() != result.bytes()) return false;
  const auto* bytes = static_cast<const uint8_t*>(operand.expected->data());
  result.fill.assign(bytes, bytes + operand.bytes());
  for (const auto& memory : {result.expected.get(), result.actual.get()})
    std::ranges::copy(result.fill, static_cast<uint8_t*>(memory->data()));
  return true;
}

// Reduce positions that are worked on one after the other are one unit of the range: fewer of them, when that is too
// much for a trial.
std::vector<int64_t> WithFewTurns(const ir::KernelSpec& spec, const ir::LoopNestSpec& nest, std::vector<int64_t> dims,
                                  int lanes, int64_t operations) {
  const bool ordered = std::ranges::any_of(nest.stages, [](const ir::Stage& stage) {
    return stage.kind == ir::Stage::Kind::kScatter || stage.kind == ir::Stage::Kind::kScan;
  });
  for (const ir::SpecInt& extent : nest.reduce) {
    if (!ordered || !extent.is_argument) continue;
    int64_t& turns = dims[static_cast<size_t>(extent.value)];
    const int64_t cost = UnitCost(spec, dims, lanes);
    if (cost > operations) turns = std::max(std::min(turns, kTurnsMin), turns / (cost / operations + 1));
  }
  return dims;
}

// A recurrence too long for a trial is a recurrence of fewer steps.
std::vector<int64_t> Affordable(const ir::KernelSpec& spec, std::vector<int64_t> dims, int lanes, int64_t operations) {
  const auto* nest = std::get_if<ir::LoopNestSpec>(&spec.kernel);
  if (nest != nullptr && dims.size() == static_cast<size_t>(spec.dims))
    return WithFewTurns(spec, *nest, WithSmallTables(*nest, std::move(dims)), lanes, operations);
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
  std::optional<size_t> in_place;  // results lie where in_place.h says that they may, from this pair on
  std::string name;
};

class KernelTrials {
 public:
  KernelTrials(const ir::KernelSpec& spec, KilnKernel entry, int lanes, uint64_t seed)
      : spec_(spec), entry_(entry), lanes_(lanes), random_(seed) {}

  // Whether something was run and compared; false when it needs too much memory, or has nothing to do, or nothing can
  // lie in place that should.
  Result<bool> Run(const Trial& trial) {
    const std::vector<int64_t> dims = Affordable(spec_, trial.dims, lanes_, trial.operations_max);
    ASSIGN_OR_RETURN(const std::vector<PointerExtent> extents, PointerExtents(spec_, dims, lanes_));
    int64_t bytes = 0;
    for (const PointerExtent& extent : extents) bytes += extent.elements * DTypeBytes(extent.dtype);
    if (bytes > kTrialBytesMax) return false;
    buffers_.resize(extents.size());
    std::vector<void*> expected, actual;
    for (size_t i = 0; i < extents.size(); ++i) {
      TrialBuffer& buffer = buffers_[i];
      if (!buffer.Fill(extents[i], trial.special ? SpecialValuesOf(spec_, i) : SpecialValues(), random_)) return false;
      expected.push_back(buffer.pointer(buffer.expected->data()));
      actual.push_back(buffer.actual == nullptr ? expected.back() : buffer.pointer(buffer.actual->data()));
    }
    if (trial.in_place && !ShareMemories(dims, *trial.in_place, actual)) return false;
    const Parts parts =
        PartsOf(ir::RangeOf(spec_, dims, lanes_), UnitCost(spec_, dims, lanes_), trial.operations_max, random_);
    RETURN_IF_ERROR(Evaluate(expected, dims, parts, Leaning::kNone));
    const KilnKernelArgs args{actual.data(), dims.data(), nullptr};
    for (const auto& [begin, end] : parts) entry_(&args, begin, end);
    RETURN_IF_ERROR(Compare(trial, dims, parts, expected));
    return !parts.empty();
  }

 private:
  bool ShareMemories(std::span<const int64_t> dims, size_t first, std::vector<void*>& actual) {
    bool any = false;
    for (const ir::InPlaceOperand& pair : ir::InPlaceAt(spec_, dims, first)) {
      const auto from = static_cast<size_t>(pair.loaded), to = static_cast<size_t>(pair.stored);
      if (!ShareMemory(buffers_[from], buffers_[to])) continue;
      actual[from] = actual[to];
      any = true;
    }
    return any;
  }

  Status Evaluate(std::span<void* const> pointers, std::span<const int64_t> dims, const Parts& parts,
                  Leaning leaning) const {
    for (const auto& [begin, end] : parts)
      RETURN_IF_ERROR(EvaluateByColumns(spec_, pointers, dims, lanes_, begin, end, leaning));
    return {};
  }

  Status Compare(const Trial& trial, std::span<const int64_t> dims, const Parts& parts,
                 const std::vector<void*>& expected) {
    const auto where = [&trial](size_t i) { return trial.name + ", pointer " + std::to_string(i); };
    std::vector<std::vector<Difference>> differences(buffers_.size());
    bool any = false;
    for (size_t i = 0; i < buffers_.size(); ++i) {
      const TrialBuffer& buffer = buffers_[i];
      if (buffer.actual == nullptr) continue;
      if (!std::ranges::all_of(buffer.actual->before(), [](uint8_t byte) { return byte == kCanary; }))
        return Fail(ErrorCode::kCompileFailed, where(i) + ": the kernel wrote before the first element");
      differences[i] = FindDifferences(buffer.extent, buffer.expected->data(), buffer.actual->data());
      any = any || !differences[i].empty();
    }
    if (any) RETURN_IF_ERROR(WidenAll(dims, parts, expected, differences));
    for (size_t i = 0; i < buffers_.size(); ++i)
      if (!differences[i].empty())
        RETURN_IF_ERROR(Judge(buffers_[i].extent, buffers_[i].expected->data(), buffers_[i].actual->data(),
                              differences[i], where(i)));
    return {};
  }

  Status WidenAll(std::span<const int64_t> dims, const Parts& parts, const std::vector<void*>& expected,
                  std::vector<std::vector<Difference>>& differences) const {
    for (const Leaning leaning : kLeanings) {
      std::vector<std::vector<uint8_t>> leant(buffers_.size());
      std::vector<void*> pointers = expected;
      for (size_t i = 0; i < buffers_.size(); ++i) {
        if (buffers_[i].actual == nullptr) continue;
        leant[i] = buffers_[i].fill;
        pointers[i] = buffers_[i].pointer(leant[i].data());
      }
      RETURN_IF_ERROR(Evaluate(pointers, dims, parts, leaning));
      for (size_t i = 0; i < buffers_.size(); ++i)
        if (buffers_[i].actual != nullptr)
          Widen(buffers_[i].extent, leant[i].data(), buffers_[i].actual->data(), differences[i]);
    }
    return {};
  }

  const ir::KernelSpec& spec_;
  const KilnKernel entry_;
  const int lanes_;
  std::mt19937_64 random_;
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
  const int lanes = InfoOf(target).f32_lanes();
  std::vector<std::vector<int64_t>> calls(trial_dims.begin(), trial_dims.end());
  if (!calls.empty())
    for (std::vector<int64_t>& edge : EdgeTrials(spec, calls.front(), lanes))
      if (calls.size() < limits::kTrialsPerKernelMax && std::find(calls.begin(), calls.end(), edge) == calls.end())
        calls.push_back(std::move(edge));
  KernelTrials trials(spec, mapping->entry(0), lanes, seed);
  uint32_t compared = 0;
  const auto run = [&](Trial trial, size_t t) -> Status {
    trial.name = "trial " + std::to_string(t) + trial.name;
    ASSIGN_OR_RETURN(const bool ran, trials.Run(trial));
    compared += ran ? 1 : 0;
    return {};
  };
  for (size_t t = 0; t < calls.size(); ++t)
    RETURN_IF_ERROR(run({calls[t], t == 0 ? kFirstTrialOperationsMax : kTrialOperationsMax, false, {}, ""}, t));
  // Every call once more and every pair at least once, in turn.
  const size_t pairs = ir::InPlaceOperands(spec).size();
  for (size_t p = 0; pairs > 0 && !calls.empty() && p < std::max(pairs, calls.size()); ++p) {
    const size_t t = p % calls.size();
    RETURN_IF_ERROR(run({calls[t], kInPlaceOperationsMax, false, p, " in place"}, t));
  }
  if (!calls.empty()) RETURN_IF_ERROR(run({calls[0], kTrialOperationsMax, true, {}, " with special values"}, 0));
  return compared;
}

}  // namespace kiln

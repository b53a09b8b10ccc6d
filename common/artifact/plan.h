// Plan: what a segment executes when it is compiled, and Guard: when it may.
//
// A plan is written over the segment's symbols: every size, stride, offset and kernel argument is a Dim of `symbols`.
// For an exact plan they are constants. The worker *links* a plan to a model once (weights checked, prepack recipes
// run, kernels mapped) and *instantiates* it per signature (Dims evaluated, arena packed, bounds verified); see
// vm-worker/dispatch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/artifact/weight_form.h"
#include "common/base/hash.h"
#include "common/base/result.h"
#include "common/bytecode/program.h"
#include "common/segment/segment.h"
#include "common/shape/tensor_desc.h"

namespace kiln {

using KernelId = Digest;   // hash of the code bytes: what plans name
using KernelKey = Digest;  // hash of spec, target, codegen id: for lookup and single flight
using PlanKey = Digest;

// How far a plan's floats may be from the interpreter's (closed table).
enum class NumericMode : uint8_t {
#define KILN_NUMERIC_MODE(value, name, rtol, atol, doc) k##name = value,
#include "common/artifact/numeric_modes.def"
#undef KILN_NUMERIC_MODE
};
struct Tolerance {
  double rtol, atol;
};
Tolerance ToleranceOf(NumericMode mode);
// From the number in numeric_modes.def, as plans and requests carry it.
std::optional<NumericMode> NumericModeFromNumber(uint8_t number);

// How specific a plan is to shapes.
enum class PlanTier : uint8_t {
#define KILN_PLAN_TIER(value, name, text, doc) k##name = value,
#include "common/artifact/plan_tiers.def"
#undef KILN_PLAN_TIER
};
std::string_view PlanTierName(PlanTier tier);
// From the number in plan_tiers.def, as records and requests carry it.
std::optional<PlanTier> PlanTierFromNumber(uint8_t number);

// --- guard ---

// The legal values of one symbol. min == max: exact.
struct SymbolGuard {
  int64_t min = 0;
  int64_t max = Interval::kNoBound;
  int64_t divisor = 1;
  bool operator==(const SymbolGuard&) const = default;
};

// What the plan needs of one run-time input's memory.
struct InputGuard {
  bool contiguous = true;  // row-major without gaps
  AlignmentClass alignment = AlignmentClass::kElement;
  bool operator==(const InputGuard&) const = default;
};

// The predicate under which a plan is valid. Symbols of kind kValueDim carry no SymbolGuard bounds of their own.
struct Guard {
  std::vector<SymbolGuard> symbols;     // per symbol of the segment
  std::vector<Constraint> constraints;  // over `symbols` of the plan; assumptions made while binding
  std::vector<InputGuard> inputs;       // per run-time input
  int64_t max_elements = INT64_MAX;     // per tensor; INT32_MAX when the code indexes with 32 bits
  bool operator==(const Guard&) const = default;
};

// Which fact fails, or nothing. `text` is for explain: "dim 3 of input 0 is 320; the plan holds for 48..192, multiples
// of 8".
struct GuardFailure {
  std::string text;
};
std::optional<GuardFailure> CheckGuard(const Guard& guard, const SymbolTable& symbols,
                                       std::span<const int64_t> symbol_values, std::span<const TensorRef> inputs);
// Canonical bytes (hashed into the PlanKey, sent in Variants) and back.
std::vector<uint8_t> EncodeGuard(const Guard& guard, const SymbolTable& symbols);
Result<Guard> DecodeGuard(std::span<const uint8_t> bytes, SymbolTable* symbols);
// Most specific first: exact before range before generic; a total, deterministic order.
bool MoreSpecific(const Guard& a, const Guard& b);

// --- plan ---

// Where a value's bytes lie.
enum class StorageKind : uint8_t { kInput = 0, kOutput = 1, kWeight = 2, kPrepacked = 3, kArena = 4 };

// A strided view of a storage: address = base(storage) + offset * element size.
struct PlanValue {
  StorageKind storage;
  int32_t index;  // run-time input, output, weight, prepack recipe, or arena buffer
  DType dtype;
  Dim offset;                // elements
  std::vector<Dim> dims;     // logical order
  std::vector<Dim> strides;  // elements
};

// A temporary. Alive in steps [first_step, last_step]; placed by the worker's packing. `in_place_of`: a buffer, last
// used by the step that first uses this one, whose memory this one may have: a kernel step that reads each element of
// that buffer before it writes the same bytes, and no later (compile-service/ir/in_place.h). -1: none. A worker that
// gives it memory of its own, as those before this field do, answers the same.
struct PlanBuffer {
  Dim bytes;
  int32_t first_step;
  int32_t last_step;
  int32_t in_place_of = -1;
};

struct KernelStep {
  int32_t kernel;                 // index into Plan::kernels
  std::vector<int32_t> pointers;  // PlanValue per kernel pointer
  std::vector<Dim> dims;          // kernel dims, in the spec's order
  Dim range;                      // parallel extent: the kernel is called for [0, range) or parts of it
  Dim cost;           // estimated work in scalar operations, moved bytes as so many each (lower/kernel_cost.h)
  Dim scratch_bytes;  // per thread
};

// A node run by its reference kernel.
struct ReferenceStep {
  TensorOp op;
  Attributes attributes;        // Dim lists over the plan's symbols
  std::vector<int32_t> inputs;  // PlanValue, -1 absent
  std::vector<int32_t> outputs;
};

struct PlanStep {
  std::variant<KernelStep, ReferenceStep> step;
  std::vector<int32_t> nodes;  // nodes of the segment's body that it computes, for explain
  std::string label;           // "conv 3x3 + bias + hardswish"
};

// Prepacking: a small program over weights, run once per model by reference kernels; its single output is the packed
// tensor, contiguous and 64-byte aligned. Folding of weights into weights (batch norm, scales) and layouts alike are
// such programs.
struct PrepackRecipe {
  Program program;
  std::vector<int32_t> weights;  // segment weight per program input
};

// What was measured before a tuned plan's tile was chosen. The first choice is what the cost model takes.
struct TunedChoice {
  std::string what;  // "tile 8x3"
  int64_t ns = 0;    // of the kernel's calls in one run of the plan, at the observed sizes
  bool operator==(const TunedChoice&) const = default;
};
struct KernelTuning {
  int32_t kernel = 0;  // index into Plan::kernels
  int32_t chosen = 0;  // index into `choices`
  std::vector<TunedChoice> choices;
  bool operator==(const KernelTuning&) const = default;
};
inline constexpr size_t kTunedChoicesMax = 16;
inline constexpr size_t kTunedTextMax = 256;

struct Plan {
  SegmentId segment;
  std::string target;
  uint32_t abi = 0;
  NumericMode numeric_mode{};
  SymbolTable symbols;  // ids of the segment's symbols, plus expressions
  Guard guard;
  std::vector<KernelId> kernels;  // at most limits::kPlanKernelsMax
  std::vector<PlanValue> values;
  std::vector<PlanBuffer> buffers;
  std::vector<PrepackRecipe> recipes;
  std::vector<int32_t> outputs;  // PlanValue (storage kOutput) per segment output: its dims and dtype
  std::vector<PlanStep> steps;
  WeightForm weights{};              // as given: no recipe reads a weight; part of the PlanKey
  bool tuned = false;                // tiles chosen by measurement: part of the PlanKey
  std::vector<KernelTuning> tuning;  // the measurements; only of a tuned plan

  // Whether it takes memory for weights beside the model's own.
  bool PacksWeights() const {
    return std::ranges::any_of(recipes, [](const PrepackRecipe& recipe) { return !recipe.weights.empty(); });
  }
};

// Bytes of a plan (plan.fbs) and back; Decode verifies every index, rank, count and expression, and the recipes'
// programs.
std::vector<uint8_t> EncodePlan(const Plan& plan);
Result<Plan> DecodePlan(std::span<const uint8_t> bytes);
// Structure and meaning against the segment it claims to be for.
Status VerifyPlan(const Plan& plan, const Segment& segment);

// PlanKey = SegmentId, canonical guard, target, numeric mode, ABI, whether it is tuned, and how it reads weights
// (docs/design.md). What was measured is no part of it: whoever looks for the tuned plan finds the one that the fleet
// has.
PlanKey ComputePlanKey(const Plan& plan);

}  // namespace kiln

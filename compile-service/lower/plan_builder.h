// PlanBuilder: where every value lies, and the growing list of steps.
//
// Values get a place (storage, offset, strides) when first asked for: inputs and weights are row-major, views follow
// from their input's place where strides allow (else a copy step is emitted), prepacked values become recipes, and the
// emitters of groups allocate what they store. A tensor's logical order of dims never changes; its order in memory is
// in its strides.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/artifact/plan.h"
#include "common/artifact/target.h"
#include "compile-service/ir/graph.h"
#include "compile-service/ir/kernel_spec.h"
#include "compile-service/lower/fuse.h"

namespace kiln::lower {

struct Place {
  StorageKind storage{};
  int32_t index = 0;
  Dim offset;                // elements
  std::vector<Dim> strides;  // per dim of the value
};

// A memory order: dims from outermost to innermost.
using Order = std::vector<int>;
Order RowMajor(int rank);
Order ChannelsLast(int rank);  // N, spatial…, C

// One access of a kernel before strides are put into a spec.
struct Operand {
  Place place;
  DType dtype{};
  std::vector<Dim> dims;     // of the value
  std::vector<Dim> strides;  // over the iteration space of the kernel, 0 where it is broadcast
  bool lookup = false;       // data that is read at positions, or the positions: its dims are not those of the space
};

// The `dims` arguments of a kernel, by position.
struct KernelArguments {
  std::vector<Dim> dims;
  ir::SpecInt Argument(Dim dim) {
    dims.push_back(dim);
    return ir::SpecInt::Argument(static_cast<int64_t>(dims.size()) - 1);
  }
  // A constant up to `limit`, or an argument.
  ir::SpecInt UpTo(Dim dim, int64_t limit) {
    return dim.is_const() && dim.value() >= 0 && dim.value() <= limit ? ir::SpecInt::Const(dim.value()) : Argument(dim);
  }
  // Strides: 0 and 1 change the code, all others are arguments.
  ir::SpecInt Stride(Dim dim) { return UpTo(dim, 1); }
};

// Positions of a resized axis, and where it interpolates the weights of the elements there: f32 or i64 [taps, out].
struct ResampleTable {
  Attributes rule;  // of the Resize, without its axis
  Dim in, out;
  int32_t taps = 1;
  Place positions;
  std::optional<Place> weights;        // none: the element itself
  std::optional<Place> shown_outside;  // f32 [out], what the weighted elements are added to
};

struct StepText {
  std::string label;
  std::vector<int32_t> nodes;  // of the segment's body
};

class PlanBuilder {
 public:
  PlanBuilder(ir::Graph& graph, const std::vector<Group>& groups, Target target, NumericMode mode,
              std::span<const int64_t> hints);

  ir::Graph& graph() { return graph_; }
  SymbolTable& symbols() { return graph_.symbols; }
  int f32_lanes() const { return InfoOf(target_).f32_lanes(); }
  Target target() const { return target_; }
  NumericMode mode() const { return mode_; }

  // --- places ---
  Result<Place> PlaceOf(ir::GraphValueId id);
  // The value's place when its strides are row-major, else a row-major copy (made once).
  Result<Place> RowMajorPlace(ir::GraphValueId id);
  // The same with the channels (dim 1) innermost and contiguous.
  Result<Place> ChannelsLastPlace(ir::GraphValueId id);
  // Moves an operand of `group`'s size that lies otherwise to channels-last memory, for all later readers.
  Status PreferChannelsLast(ir::GraphValueId id, const Group& group);
  bool IsSame(const Place& a, const Place& b, const std::vector<Dim>& dims) const;  // proven
  bool IsOrdered(const Place& place, const std::vector<Dim>& dims, const Order& order);
  // A fresh place for a value that the caller is about to store: the segment's output when it is one and `order` is
  // row-major; its part of a concatenation when that can lie in `order` too.
  Place Allocate(ir::GraphValueId id, const Order& order);
  // The same for the result of a Concat, of which pieces may be stored already.
  Place AllocateWhole(ir::GraphValueId id, const Order& order);
  // The same, but always without gaps.
  Place AllocateDense(ir::GraphValueId id, const Order& order);
  // A temporary that is no value of the graph.
  Place AllocateBuffer(DType dtype, const std::vector<Dim>& dims, const Order& order);
  // Dims from outermost to innermost by the size of their strides; a choice for speed only, made with the hints.
  Order MemoryOrder(const std::vector<Dim>& dims, const std::vector<Dim>& strides) const;
  std::vector<Dim> OrderedStrides(const std::vector<Dim>& dims, const Order& order);
  int64_t Hint(Dim dim) const;     // never 0 or 1 for a symbol
  int64_t RawHint(Dim dim) const;  // the value at the request's hints

  // Whether anything outside `nodes` reads the value.
  bool Escapes(ir::GraphValueId id, const std::vector<int32_t>& nodes) const;

  // --- operands ---
  // `place` over an iteration space, by the broadcasting rule; fails when the dims were never decided to be equal or 1.
  Result<Operand> Broadcast(const Place& place, DType dtype, const std::vector<Dim>& dims,
                            const std::vector<Dim>& space);
  Result<Operand> BroadcastValue(ir::GraphValueId id, const std::vector<Dim>& space);

  // --- prepacking ---
  // The place of a prepacked value's own contiguous tensor.
  Result<Place> Recipe(ir::GraphValueId id);
  // A prepack node made during planning.
  ir::GraphValueId AddPrepackNode(TensorOp op, std::vector<ir::GraphValueId> inputs, std::vector<Dim> dims,
                                  Attributes attributes = {}, std::optional<DType> dtype = {});
  // f32 weights with the smallest normal numbers for denormal ones (as they are in strict mode), which slow a processor
  // down a hundredfold. Not zeros: times an infinity those are no numbers.
  ir::GraphValueId WithoutDenormals(ir::GraphValueId weights);
  ir::GraphValueId AddIntegers(std::vector<int64_t> values);
  Result<Place> Zeros(int64_t elements);  // f32
  Result<Place> ZeroOf(DType dtype);      // one element

  // --- tables ---
  std::vector<ResampleTable>& resample_tables() { return resample_tables_; }  // that steps have filled so far

  // --- steps ---
  // Steps that follow are the group's; -1: nobody's.
  void BeginGroup(int32_t group) { group_ = group; }
  const std::vector<int32_t>& step_groups() const { return step_groups_; }  // per step
  // A value that steps have made at `place`, for reference steps to read.
  ir::GraphValueId AddMade(DType dtype, std::vector<Dim> dims, const Place& place);
  int32_t AddPlanValue(const Place& place, DType dtype, const std::vector<Dim>& dims);
  Status AddKernel(ir::KernelSpec spec, std::vector<int32_t> pointers, KernelArguments arguments, Dim range, Dim cost,
                   StepText text);
  void AddReference(ReferenceStep step, StepText text);
  // The step that ends a run of the plan when `indices` are not all of `axis` of the data (with `tuple`, tuples of that
  // axis and those after it): once per indices and sizes, and never where they are known to be.
  Status AddIndexCheck(ir::GraphValueId indices, ir::GraphValueId data, size_t axis, bool tuple,
                       const std::vector<int32_t>& nodes);
  // The step that ends a run of the plan when a divisor of a quotient of these dims is 0 and the quotient has elements,
  // once per divisor and dims.
  Status AddDivisorCheck(ir::GraphValueId divisor, const std::vector<Dim>& quotient, const std::vector<int32_t>& nodes);
  // Copies move bits, whatever they mean: NaNs keep theirs. The two dtypes of a bit cast are of one width.
  Status AddCopy(const Place& from, const Place& to, DType dtype, const std::vector<Dim>& dims, StepText text);
  Status AddBitCast(const Place& from, DType from_dtype, const Place& to, DType to_dtype, const std::vector<Dim>& dims,
                    StepText text);

  // Outputs that are views, inputs or weights are copied; lifetimes, segment-wide facts. The builder is used up.
  Status Finish();
  Plan& plan() { return plan_; }
  std::vector<ir::KernelSpec>& specs() { return specs_; }

 private:
  // Input `input` of the Concat that makes `whole`, itself or reshaped.
  struct Piece {
    ir::GraphValueId whole;
    size_t input;
  };
  void FindPieces(const std::vector<Group>& groups);
  std::optional<Place> PiecePlace(ir::GraphValueId id, const Order& order);
  bool SameOrder(const std::vector<Dim>& dims, const Order& a, const Order& b) const;
  Result<Place> ViewPlace(const ir::GraphNode& node, ir::GraphValueId id);
  // Dims [from, from_end) of a reshape's input have the elements of dims [to, to_end) of its output.
  struct ReshapeRun {
    size_t from, from_end, to, to_end;
  };
  std::optional<std::vector<ReshapeRun>> RunsOf(const std::vector<Dim>& from, const std::vector<Dim>& to);
  std::optional<Order> ChannelsLastReshape(const std::vector<Dim>& from, const std::vector<Dim>& strides,
                                           const std::vector<Dim>& to);
  std::optional<std::vector<Dim>> ReshapeStrides(const std::vector<Dim>& from, const std::vector<Dim>& strides,
                                                 const std::vector<Dim>& to);
  Result<Place> OrderedPlace(ir::GraphValueId id, const Order& order, std::map<ir::GraphValueId, Place>* copies);
  Status PlaceOutput(size_t index);
  void SetLifetimes();

  ir::Graph& graph_;
  Target target_;
  NumericMode mode_;
  std::vector<int64_t> hints_;
  std::vector<int64_t> sample_;               // symbol values that MemoryOrder and Hint evaluate with
  std::vector<std::optional<Place>> places_;  // per value of the graph
  std::map<ir::GraphValueId, Place> row_major_, channels_last_;
  std::map<ir::GraphValueId, Piece> piece_of_;     // values that a concatenation's memory may be made of
  std::map<ir::GraphValueId, Order> whole_order_;  // of concatenations whose memory exists
  std::map<ir::GraphValueId, int32_t> recipe_of_;
  std::vector<std::pair<ir::GraphNode, ir::GraphValueId>> prepack_nodes_;
  std::vector<std::pair<std::vector<int64_t>, ir::GraphValueId>> integers_;
  ir::GraphValueId smallest_normal_ = -1;  // scalar of WithoutDenormals
  ir::GraphValueId zeros_ = -1;
  struct IndexCheck {
    ir::GraphValueId indices;
    bool tuple;
    std::vector<Dim> sizes;
  };
  std::vector<IndexCheck> index_checks_;
  std::vector<std::pair<ir::GraphValueId, std::vector<Dim>>> divisor_checks_;  // divisor, dims of the quotient
  std::vector<ResampleTable> resample_tables_;
  std::vector<int> output_of_;  // per value: the first segment output it is, or -1
  std::vector<bool> output_written_;
  std::vector<std::vector<int32_t>> readers_;  // per value: nodes
  int32_t group_ = -1;
  std::vector<int32_t> step_groups_;
  Plan plan_;
  std::vector<ir::KernelSpec> specs_;
};

// A prepack recipe for `id`: the nodes it follows from, as a program over weights (recipes.cc).
Result<PrepackRecipe> BuildRecipe(const ir::Graph& graph, ir::GraphValueId id);

}  // namespace kiln::lower

// Segments: maximal single-entry runs of pure nodes, cut out of a program, and their canonical form.
//
// The canonical form is itself a Program (one function, one region), so that it is verified, serialised, printed and
// hashed by the same code as a model. Names are gone, nodes and values are renumbered in order of first use, immediates
// are kept by value, weights are function inputs of which only dtype and dims are kept. Equal layers give equal
// segments.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/hash.h"
#include "common/base/result.h"
#include "common/bytecode/compact.h"
#include "common/bytecode/emit.h"
#include "common/bytecode/program.h"
#include "common/bytecode/symbol_definitions.h"

namespace kiln {

using SegmentId = Digest;

enum class SegmentEnd : uint8_t {
#define KILN_SEGMENT_END(value, name, text) k##name = value,
#include "common/segment/end_reasons.def"
#undef KILN_SEGMENT_END
};
std::string_view SegmentEndText(SegmentEnd reason);

// Where the value of a segment's symbol comes from when the segment is entered.
struct SymbolSource {
  enum class Kind : uint8_t {
    kInputDim = 0,   // dim `dim` of run-time input `index`
    kParameter = 1,  // passed by the caller: parameter `index` (a symbol of the model that no run-time input shows)
    kValueDim = 2,   // dim `dim` of value `index` of the body, known once that node's shape rule has run
  };
  Kind kind;
  int32_t index;
  int32_t dim;
  bool operator==(const SymbolSource&) const = default;
};

// Canonical, self-contained. Everything here is covered by `id`.
struct Segment {
  Program body;  // function 0: inputs = run-time inputs, then weights
  int runtime_inputs = 0;
  std::vector<SymbolSource> symbols;  // per symbol of body.symbols
  int parameters = 0;
  SegmentId id;

  int weight_count() const;
  const TensorDesc& input(int i) const;  // desc of function input i
};

// Where a segment lies in its model, and how model values map to the canonical inputs and outputs.
struct SegmentSite {
  int function = 0;
  RegionId region = 0;
  int first_node = 0;  // nodes [first_node, end_node) of the region
  int end_node = 0;
  SegmentEnd end_reason = SegmentEnd::kRegionEnd;
  std::vector<ValueId> inputs;      // run-time inputs, canonical order
  std::vector<ConstantId> weights;  // canonical order
  std::vector<ValueId> outputs;     // values used after the segment, canonical order
  std::vector<Dim> parameters;      // dims of the model's symbol table
};

struct SegmentedProgram {
  std::vector<SegmentSite> sites;
  std::vector<NodePlace> static_nodes;  // sorted; output sizes proven to be constants
  // Sorted (function, value): outputs of nodes whose stated sizes no shape rule proves. They have to be checked when
  // the node has run; a symbol that gets its value there needs no proof.
  std::vector<std::pair<int, ValueId>> unproven;
  // A node that every run comes to and of which the program states sizes that no legal input gives: function, node, dim
  // and both sizes.
  std::optional<Error> refuted;
};

// For emission; reads `segmented`, which outlives it.
ShapeFacts ShapeFactsOf(const SegmentedProgram& segmented);

// Splits every region of every function. Constant and ShapeVector nodes never end a segment and never cross a border: a
// segment that uses one holds its own copy. A run of such nodes alone is no segment; a run of nothing but views is one.
// Deterministic.
SegmentedProgram SegmentProgram(const Program& program, const SymbolDefinitions& definitions);
std::vector<SegmentSite> FindSegments(const Program& program);  // its sites

// The canonical form of a site, with its id. The second form saves finding the definitions again for each of many
// sites.
Result<Segment> CanonicalSegment(const Program& program, const SegmentSite& site);
Result<Segment> CanonicalSegment(const Program& program, const SymbolDefinitions& definitions, const SegmentSite& site);

// Content hash of body, input split and symbol sources; what a receiver recomputes and compares.
SegmentId ComputeSegmentId(const Segment& segment);

// Bytes as sent to the compile service, and back. Encode fails as EncodeProgram does. Decode verifies the body and
// recomputes the id.
Result<std::vector<uint8_t>> EncodeSegment(const Segment& segment);
Result<Segment> DecodeSegment(std::span<const uint8_t> bytes);

// Values of the segment's symbols of kinds kInputDim and kParameter for a call. Fails when a symbol shown by two dims
// has two values, or a declared range, divisor or constant dim is violated; the error names input, dim, value and
// constraint. kValueDim symbols get -1. `values` has body.symbols.symbol_count() entries.
Status BindSymbols(const Segment& segment, std::span<const TensorRef> inputs, std::span<const int64_t> parameters,
                   std::span<int64_t> values);

}  // namespace kiln

// The lossless text form of a Program. ParseProgram(PrintProgram(p)) equals p, bit for bit, ids included.
//
//   program "mlp" {
//     symbol n in [1, 4096] divisor 1
//     constraint n <= 128
//     constant w0 : f32[64, 32] = hex "…"        // or [1.0, 2.0], splat 0.5, ref 4096 (an offset in the weight file)
//     func main(%x: f32[n, 64]) -> (%y) {
//       %w : f32[64, 32] = Constant() {value = @w0}
//       %y : f32[n, 32] = MatMul(%x, %w) "source node name"
//     }
//   }
//
// - A value is `%name` where its name is plain and unique in its function, else `%id`, with the name in quotes at its
//   definition. Ids count definitions in the order of the text; where they do not, `%name#id` says so. `_` is an absent
//   input or output. Constants are `@name` or `@id` alike.
// - Attributes: 1 · 0.5 · "text" · [1, 2] · [0.5] · ["a"] · @constant · dims[n, 2*n]; empty lists are ints[], floats[],
// texts[].
//   An integer is taken for a float where op_attributes.def says that the attribute is one.
// - Regions follow the node: `If(%c) then() -> (%a) {…} else() -> (%b) {…}`, `Loop(%n, _, %s) body(%i: i64[], …) -> (…)
// {…}`;
//   `body#5` where the region's id is not the next one.
// - A desc is `f32[n, 64]`, `f32[*]` for an unknown rank, and then, where they are not the default: strided, stride0,
//   blocked, view, unaligned, cuda.
// - `constant` is an immediate as Program::IsImmediate says; `immediate` and `weight` instead of it say otherwise.
#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/base/text_reader.h"
#include "common/bytecode/program.h"
#include "common/bytecode/weights.h"

namespace kiln {

struct PrintOptions {
  WeightPlacement placement;      // constants that are printed as `ref offset`; absent: none
  size_t list_elements_max = 16;  // larger constants are printed as splat or hex
};

// Precondition: VerifyProgram accepts the program.
std::string PrintProgram(const Program& program, const PrintOptions& options = {});
// Malformed errors name line and column. The result has passed VerifyProgram. `weights` resolves `ref`.
Result<Program> ParseProgram(std::string_view text, WeightSource* weights = nullptr);
// As above from a larger text: stops behind the program's closing brace.
Result<Program> ParseProgram(TextReader& reader, WeightSource* weights = nullptr);

}  // namespace kiln

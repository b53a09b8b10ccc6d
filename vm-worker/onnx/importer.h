// ONNX models to Programs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/bytecode/program.h"
#include "vm-worker/onnx/dim_hints.h"

namespace kiln {

// The span of ai.onnx operator sets that the importer reads. Of sets below 6 it knows the operators that have not
// changed since.
inline constexpr int64_t kOnnxOpsetMin = 1;
inline constexpr int64_t kOnnxOpsetMax = 28;

struct ImportOptions {
  // Every input dim becomes a symbol of its own, except lengths of 1-D inputs that determine a rank (a Reshape shape, a
  // Squeeze axes list…).
  bool all_dims_dynamic = false;
  // Ranges and divisors of input dims, as constraints on their symbols: what cannot hold under them fails at load, a
  // call outside them at its entry. A symbol whose range is one size becomes that constant.
  std::vector<DimHint> dim_hints;
  // Overridable initialisers that become inputs of the program. InvalidArgument names one that is none.
  std::vector<std::string> overrides;
};

// An initialiser that the model also lists as an input, of a model whose format lets callers replace it (version 4 and
// later): a constant, unless ImportOptions::overrides names it.
struct OverridableInput {
  std::string name;
  DType dtype = DType::kF32;
  std::optional<std::vector<int64_t>> dims;  // as declared, -1 where the size may vary; none: any rank
  std::string text;                          // "f32[n, 64]"
};

// An input or output as the model declares it.
struct ImportedValue {
  std::string name;
  TensorDesc desc;  // dims refer to the program's symbol table
};

struct ImportedModel {
  Program program;  // verified; entry inputs and outputs in the order of the lists below
  std::vector<ImportedValue> inputs;
  std::vector<ImportedValue> outputs;               // as inferred; the declared output shapes are not trusted
  std::vector<OverridableInput> overridable;        // those that are constants of this program
  int64_t opset = 0;                                // of domain ai.onnx
  std::vector<std::filesystem::path> weight_files;  // external data that was read
};

// Reads, imports, prepares (see PrepareProgram) and verifies a model. Errors:
//   NotFound, IoError       the file, or one of its external data files, cannot be read
//   Malformed               not an ONNX model: truncated, damaged, contradictory; the message names the place
//   Unsupported             well-formed; the message names node, operator, domain and opset
//   LimitExceeded           a bound of common/base/limits.h
//   InvalidArgument, ShapeMismatch, OutOfRange   a node that does not follow its operator, a node that every run comes
//                           to and that cannot be right for any input, or several that cannot be right for the same
//                           one; the message names them, what they ask for, and the hints that limit it
Result<ImportedModel> ImportOnnx(const std::filesystem::path& path, const ImportOptions& options = {});
// As above for bytes in memory; external data is not available. `name` appears in messages.
Result<ImportedModel> ImportOnnxBytes(std::span<const uint8_t> bytes, std::string_view name,
                                      const ImportOptions& options = {});

}  // namespace kiln

// Models on disk, in whatever form: ONNX, program text, or the binary form that `kiln import` writes.
#pragma once

#include "vm-worker/onnx/importer.h"

namespace kiln {

enum class ModelForm : uint8_t { kOnnx, kText, kBinary };

// By content: the binary form by its magic, text by its first word, else ONNX.
Result<ModelForm> FormOf(const std::filesystem::path& path);

// Read and verified, a declaration that no sizes satisfy included; errors begin with the path. An ONNX model is
// imported under `options` and prepared; a program is as it was written, and `options` must not hold dim hints
// (InvalidArgument): its symbols have their ranges.
Result<ImportedModel> ReadModel(const std::filesystem::path& path, const ImportOptions& options = {});

}  // namespace kiln

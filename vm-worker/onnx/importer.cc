#include "vm-worker/onnx/importer.h"

#include "schemas/onnx.pb.h"
#include "vm-worker/onnx/graph_importer.h"
#include "vm-worker/onnx/model_file.h"

namespace kiln {
namespace {

Result<ImportedModel> Import(std::span<const uint8_t> bytes, std::string_view name,
                             const std::filesystem::path& directory, const ImportOptions& options) {
  onnx::ModelProto model;
  RETURN_IF_ERROR(onnx::ParseMessage(bytes, name, model));
  if (!model.has_graph()) {
    return Fail(ErrorCode::kMalformed, std::string(name) + " has no graph: it is not an ONNX model, or it is damaged");
  }
  if (model.graph().node_size() > static_cast<int>(limits::kProgramNodesMax)) {
    return Fail(ErrorCode::kLimitExceeded, std::string(name) + " has " + std::to_string(model.graph().node_size()) +
                                               " nodes; at most " + std::to_string(limits::kProgramNodesMax) +
                                               " are read");
  }
  auto imported = onnx::GraphImporter(model, directory, options).Run();
  if (!imported.has_value()) return FailIn(name, imported.error());
  if (Status status = VerifyProgram(imported->program); !status.has_value()) return FailIn(name, status.error());
  return imported;
}

}  // namespace

Result<ImportedModel> ImportOnnx(const std::filesystem::path& path, const ImportOptions& options) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const onnx::MappedFile> file, onnx::MappedFile::Open(path));
  const std::filesystem::path parent = path.parent_path();
  return Import(file->bytes(), path.string(), parent.empty() ? "." : parent, options);
}

Result<ImportedModel> ImportOnnxBytes(std::span<const uint8_t> bytes, std::string_view name,
                                      const ImportOptions& options) {
  return Import(bytes, name, {}, options);
}

}  // namespace kiln

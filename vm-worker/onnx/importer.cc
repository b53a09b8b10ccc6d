#include "vm-worker/onnx/importer.h"

#include "common/segment/entry_requirements.h"
#include "schemas/onnx.pb.h"
#include "vm-worker/onnx/graph_importer.h"
#include "vm-worker/onnx/model_file.h"

namespace kiln {
namespace {

// Parses all but the weights where those stay in the file.
Status ParseModel(std::span<const uint8_t> bytes, std::string_view name, onnx::WeightFiles& files,
                  onnx::ModelProto& model) {
  if (files.model() != nullptr) {
    const std::optional<std::string> without = onnx::WithoutRawData(bytes);
    if (without.has_value() &&
        onnx::ParseMessage({reinterpret_cast<const uint8_t*>(without->data()), without->size()}, name, model))
      return {};
    model.Clear();
    files.ForgetModel();
  }
  return onnx::ParseMessage(bytes, name, model);
}

Result<ImportedModel> Import(std::span<const uint8_t> bytes, std::string_view name, onnx::WeightFiles files,
                             const ImportOptions& options) {
  onnx::ModelProto model;
  RETURN_IF_ERROR(ParseModel(bytes, name, files, model));
  if (!model.has_graph()) {
    return Fail(ErrorCode::kMalformed, std::string(name) + " has no graph: it is not an ONNX model, or it is damaged");
  }
  if (model.graph().node_size() > static_cast<int>(limits::kProgramNodesMax)) {
    return Fail(ErrorCode::kLimitExceeded, std::string(name) + " has " + std::to_string(model.graph().node_size()) +
                                               " nodes; at most " + std::to_string(limits::kProgramNodesMax) +
                                               " are read");
  }
  onnx::GraphImporter importer(model, std::move(files), options);
  auto imported = importer.Run();
  if (!imported.has_value()) return FailIn(name, imported.error());
  const Program& program = imported->program;
  if (Status status = VerifyProgram(program); !status.has_value()) return FailIn(name, status.error());
  const auto source = [&](const std::string& symbol) { return importer.builder().RangeSource(symbol); };
  const auto requirements = FindEntryRequirements(program, FindSymbolDefinitions(program), source);
  if (!requirements.has_value()) return FailIn(name, requirements.error());
  return imported;
}

}  // namespace

Result<ImportedModel> ImportOnnx(const std::filesystem::path& path, const ImportOptions& options) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const onnx::MappedFile> file, onnx::MappedFile::Open(path));
  const std::filesystem::path parent = path.parent_path();
  return Import(file->bytes(), path.string(), onnx::WeightFiles(parent.empty() ? "." : parent, file), options);
}

Result<ImportedModel> ImportOnnxBytes(std::span<const uint8_t> bytes, std::string_view name,
                                      const ImportOptions& options) {
  return Import(bytes, name, {}, options);
}

}  // namespace kiln

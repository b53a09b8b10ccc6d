#include "vm-worker/onnx/model_source.h"

#include <span>
#include <string_view>

#include "common/bytecode/program_codec.h"
#include "common/bytecode/program_text.h"
#include "vm-worker/onnx/model_file.h"

namespace kiln {
namespace {

// FlatBuffers put a file's identifier behind the root offset.
constexpr std::string_view kBinaryIdentifier = "KPRG";
constexpr size_t kIdentifierOffset = 4;

ModelForm FormOfBytes(std::span<const uint8_t> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.size() > kIdentifierOffset && text.substr(kIdentifierOffset).starts_with(kBinaryIdentifier)) {
    return ModelForm::kBinary;
  }
  const size_t word = text.find_first_not_of(" \t\r\n");
  if (word == std::string_view::npos) return ModelForm::kOnnx;
  const std::string_view rest = text.substr(word);
  return rest.starts_with("program") || rest.starts_with("//") ? ModelForm::kText : ModelForm::kOnnx;
}

Result<Program> Decode(const std::shared_ptr<const onnx::MappedFile>& file, ModelForm form) {
  const std::span<const uint8_t> bytes = file->bytes();
  ASSIGN_OR_RETURN(Program program, form == ModelForm::kBinary
                                        ? DecodeProgram(bytes, DecodeOptions{.owner = file})
                                        : ParseProgram({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  RETURN_IF_ERROR(program.symbols.CheckConsistent());
  return program;
}

}  // namespace

Result<ModelForm> FormOf(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const onnx::MappedFile> file, onnx::MappedFile::Open(path));
  return FormOfBytes(file->bytes());
}

Result<ImportedModel> ReadModel(const std::filesystem::path& path, const ImportOptions& options) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const onnx::MappedFile> file, onnx::MappedFile::Open(path));
  const ModelForm form = FormOfBytes(file->bytes());
  if (form == ModelForm::kOnnx) return ImportOnnx(path, options);
  if (!options.dim_hints.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                path.string() + " is a program, whose symbols have their ranges; give dim hints when it is imported");
  }
  auto program = Decode(file, form);
  if (!program.has_value()) return FailIn(path.string(), program.error());
  ImportedModel model{.program = *std::move(program)};
  const Function& entry = model.program.entry();
  for (ValueId id : entry.regions[0].inputs) {
    const Value& value = entry.values[static_cast<size_t>(id)];
    model.inputs.push_back({value.name, value.desc});
  }
  for (ValueId id : entry.regions[0].outputs) {
    const Value& value = entry.values[static_cast<size_t>(id)];
    model.outputs.push_back({value.name, value.desc});
  }
  return model;
}

}  // namespace kiln

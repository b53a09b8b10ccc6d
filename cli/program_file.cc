#include "cli/program_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <span>
#include <string_view>

#include "common/bytecode/program_codec.h"
#include "common/bytecode/program_text.h"
#include "vm-worker/onnx/importer.h"
#include "vm-worker/onnx/model_file.h"

namespace kiln::cli {
namespace {

// FlatBuffers put a file's identifier behind the root offset.
constexpr std::string_view kBinaryIdentifier = "KPRG";
constexpr size_t kIdentifierOffset = 4;

ProgramForm FormOfBytes(std::span<const uint8_t> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.size() > kIdentifierOffset && text.substr(kIdentifierOffset).starts_with(kBinaryIdentifier)) {
    return ProgramForm::kBinary;
  }
  const size_t word = text.find_first_not_of(" \t\r\n");
  if (word == std::string_view::npos) return ProgramForm::kOnnx;
  const std::string_view rest = text.substr(word);
  return rest.starts_with("program") || rest.starts_with("//") ? ProgramForm::kText : ProgramForm::kOnnx;
}

Result<Program> Decode(const std::shared_ptr<const onnx::MappedFile>& file) {
  const std::span<const uint8_t> bytes = file->bytes();
  if (FormOfBytes(bytes) == ProgramForm::kBinary) return DecodeProgram(bytes, DecodeOptions{.owner = file});
  return ParseProgram(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

Status WriteBytes(const std::filesystem::path& path, std::string_view bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) return Fail(ErrorCode::kIoError, path.string() + " cannot be written: " + std::strerror(errno));
  bool failed = std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size();
  int error = errno;
  if (std::fclose(file) != 0 && !failed) {
    failed = true;
    error = errno;
  }
  if (failed) return Fail(ErrorCode::kIoError, path.string() + " cannot be written: " + std::strerror(error));
  return {};
}

}  // namespace

Result<ProgramForm> FormOf(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const onnx::MappedFile> file, onnx::MappedFile::Open(path));
  return FormOfBytes(file->bytes());
}

Result<Program> ReadProgram(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const onnx::MappedFile> file, onnx::MappedFile::Open(path));
  if (FormOfBytes(file->bytes()) == ProgramForm::kOnnx) {
    ASSIGN_OR_RETURN(ImportedModel model, ImportOnnx(path));
    return std::move(model.program);
  }
  auto program = Decode(file);
  if (!program.has_value()) return FailIn(path.string(), program.error());
  return program;
}

Status WriteFile(const std::filesystem::path& path, std::string_view bytes) {
  if (path.empty()) return Fail(ErrorCode::kInvalidArgument, "the output file has an empty name");
  std::error_code ignored;
  const auto kind = std::filesystem::symlink_status(path, ignored).type();
  if (kind == std::filesystem::file_type::directory)
    return Fail(ErrorCode::kInvalidArgument, path.string() + " is a directory; name a file in it");
  // A device, a pipe or a link is written through: a rename would put a file in its place.
  if (kind != std::filesystem::file_type::regular && kind != std::filesystem::file_type::not_found)
    return WriteBytes(path, bytes);
  const std::filesystem::path partial = path.string() + ".partial";
  Status written = WriteBytes(partial, bytes);
  std::error_code error;
  if (written.has_value()) std::filesystem::rename(partial, path, error);
  if (error) written = Fail(ErrorCode::kIoError, path.string() + ": " + error.message());
  if (!written.has_value()) std::filesystem::remove(partial, ignored);
  return written;
}

}  // namespace kiln::cli

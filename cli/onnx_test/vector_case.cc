#include "cli/onnx_test/vector_case.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

namespace kiln::onnx_test {
namespace {

namespace fs = std::filesystem;

// The number between `prefix` and `suffix` of a file name.
std::optional<int> Numbered(const std::string& name, std::string_view prefix, std::string_view suffix) {
  if (!name.starts_with(prefix) || !name.ends_with(suffix) || name.size() <= prefix.size() + suffix.size()) {
    return std::nullopt;
  }
  const std::string digits = name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

std::map<int, fs::path> NumberedEntries(const fs::path& directory, std::string_view prefix, std::string_view suffix) {
  std::map<int, fs::path> entries;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    if (const auto number = Numbered(entry.path().filename().string(), prefix, suffix)) entries[*number] = entry.path();
  }
  return entries;
}

void AddCase(const fs::path& directory, const fs::path& root, const fs::path& model, std::vector<VectorCase>& cases) {
  std::error_code error;
  const fs::path own_model = model.empty() ? directory / "model.onnx" : model;
  if (!fs::exists(own_model, error)) return;
  VectorCase found{.name = directory.lexically_relative(root).string(), .model = own_model};
  if (found.name == ".") found.name = directory.filename().string();
  for (const auto& [number, path] : NumberedEntries(directory, "test_data_set_", "")) found.data_sets.push_back(path);
  if (!found.data_sets.empty()) cases.push_back(std::move(found));
}

}  // namespace

Result<std::vector<VectorCase>> FindCases(const fs::path& root, const fs::path& model) {
  std::error_code error;
  if (!fs::is_directory(root, error)) return Fail(ErrorCode::kNotFound, root.string() + " is not a directory");
  std::vector<VectorCase> cases;
  AddCase(root, root, model, cases);
  for (fs::recursive_directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->is_directory(error)) AddCase(entry->path(), root, model, cases);
  }
  if (error) return Fail(ErrorCode::kIoError, root.string() + ": " + error.message());
  std::ranges::sort(cases, {}, &VectorCase::name);
  return cases;
}

Result<DataSet> ReadDataSet(const fs::path& directory) {
  DataSet set;
  for (const auto& [number, path] : NumberedEntries(directory, "input_", ".pb")) {
    ASSIGN_OR_RETURN(onnx::NamedTensor tensor, onnx::ReadTensorFile(path));
    set.inputs.push_back(std::move(tensor));
  }
  for (const auto& [number, path] : NumberedEntries(directory, "output_", ".pb")) {
    ASSIGN_OR_RETURN(onnx::NamedTensor tensor, onnx::ReadTensorFile(path));
    set.outputs.push_back(std::move(tensor));
  }
  return set;
}

}  // namespace kiln::onnx_test

#include "tests/support/program_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/bytecode/program_text.h"
#include "common/bytecode/tensor_text.h"

namespace kiln::testing {
namespace {

class RunParser {
 public:
  RunParser(TextReader& reader, const Program& program) : reader_(reader), function_(program.entry()) {}

  Result<ProgramRun> Run() {
    const size_t start = reader_.offset();
    ASSIGN_OR_RETURN(run_.name, reader_.Quoted());
    RETURN_IF_ERROR(reader_.Expect("{"));
    while (!reader_.Take("}")) {
      if (reader_.Take("input")) {
        ASSIGN_OR_RETURN(ExpectedOutput input, ParseTensor(function_.regions[0].inputs, run_.inputs.size()));
        run_.inputs.push_back(std::move(input.tensor));
      } else if (reader_.Take("output")) {
        ASSIGN_OR_RETURN(ExpectedOutput output, ParseTensor(function_.regions[0].outputs, run_.outputs.size()));
        run_.outputs.push_back(std::move(output));
      } else if (reader_.Take("error")) {
        ExpectedError error;
        ASSIGN_OR_RETURN(error.code, reader_.Name());
        ASSIGN_OR_RETURN(error.part, reader_.Quoted());
        run_.error = std::move(error);
      } else {
        return reader_.Wrong("input, output, error or \"}\" is expected");
      }
    }
    if (run_.inputs.size() != function_.regions[0].inputs.size()) return reader_.WrongAt(start, "an input is missing");
    const size_t outputs = run_.error ? 0 : function_.regions[0].outputs.size();
    if (run_.outputs.size() != outputs)
      return reader_.WrongAt(start, "an output is missing, or one stands beside an error");
    return std::move(run_);
  }

 private:
  // The `at`-th of `values`, which must have the name that is written.
  Result<ExpectedOutput> ParseTensor(const std::vector<ValueId>& values, size_t at) {
    const size_t start = reader_.offset();
    RETURN_IF_ERROR(reader_.Expect("%"));
    ASSIGN_OR_RETURN(const std::string name, reader_.Name());
    if (at >= values.size() || function_.values[static_cast<size_t>(values[at])].name != name) {
      return reader_.WrongAt(start, "%" + name + " is not number " + std::to_string(at) + " of its kind");
    }
    RETURN_IF_ERROR(reader_.Expect(":"));
    DType dtype{};
    Dims dims;
    RETURN_IF_ERROR(ParseStaticShape(reader_, dtype, dims));
    ExpectedOutput expected;
    if (reader_.Take("within")) {
      ASSIGN_OR_RETURN(const std::string_view text, reader_.Scalar());
      ASSIGN_OR_RETURN(expected.tolerance, ParseFloat(text));
    }
    RETURN_IF_ERROR(reader_.Expect("="));
    ASSIGN_OR_RETURN(expected.tensor, ParseTensorData(reader_, dtype, dims));
    return expected;
  }

  TextReader& reader_;
  const Function& function_;
  ProgramRun run_;
};

template <class T>
constexpr bool kIsFloat = std::is_floating_point_v<T> || std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

template <class T>
bool Agree(T expected, T actual, double tolerance) {
  if constexpr (kIsFloat<T>) {
    const double e = static_cast<double>(static_cast<std::conditional_t<sizeof(T) == 2, float, T>>(expected));
    const double a = static_cast<double>(static_cast<std::conditional_t<sizeof(T) == 2, float, T>>(actual));
    if (std::isnan(e) || std::isnan(a)) return std::isnan(e) && std::isnan(a);
    if (tolerance == 0 || std::isinf(e) || std::isinf(a)) return std::memcmp(&expected, &actual, sizeof(T)) == 0;
    return std::abs(a - e) <= tolerance * std::max(1.0, std::abs(e));
  } else {
    return expected == actual;
  }
}

}  // namespace

Result<ProgramFile> ParseProgramFile(std::string_view text) {
  TextReader reader(text);
  ProgramFile file;
  ASSIGN_OR_RETURN(file.program, ParseProgram(reader));
  while (!reader.AtEnd()) {
    RETURN_IF_ERROR(reader.Expect("run"));
    ASSIGN_OR_RETURN(ProgramRun run, RunParser(reader, file.program).Run());
    file.runs.push_back(std::move(run));
  }
  if (file.runs.empty()) return reader.Wrong("a file without a run shows nothing");
  return file;
}

Result<ProgramFile> ReadProgramFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return Fail(ErrorCode::kNotFound, path + " cannot be read");
  std::ostringstream text;
  text << stream.rdbuf();
  auto file = ParseProgramFile(text.str());
  if (!file) return FailIn(path, file.error());
  return file;
}

std::vector<std::string> ProgramFilesIn(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".kiln") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string DifferenceOf(const TensorRef& expected, const TensorRef& actual, double tolerance) {
  const auto shape = [](const TensorRef& ref) { return std::string(DTypeName(ref.dtype)) + ref.dims.ToString(); };
  if (expected.dtype != actual.dtype || expected.dims != actual.dims) {
    return "expected " + shape(expected) + ", got " + shape(actual);
  }
  const Tensor left = MakeContiguous(expected), right = MakeContiguous(actual);
  return DispatchDType(expected.dtype, [&]<class T>() -> std::string {
    for (int64_t i = 0; i < left.ref.elements(); ++i) {
      const T *e = left.ref.as<T>() + i, *a = right.ref.as<T>() + i;
      if (Agree(*e, *a, tolerance)) continue;
      return "element " + std::to_string(i) + " of " + shape(expected) + ": expected " +
             ElementText(expected.dtype, e) + ", got " + ElementText(expected.dtype, a);
    }
    return "";
  });
}

}  // namespace kiln::testing

#include "tests/common/ops/case_file.h"

#include <cmath>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace kiln::testing {
namespace {

std::vector<std::string> SplitAtText(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (true) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end == std::string::npos ? end : end - begin));
    if (end == std::string::npos) return parts;
    begin = end + separator.size();
  }
}

std::string Trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(' ');
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

AttributeValue ParseValue(const std::string& text) {
  if (text.front() == '"') return text.substr(1, text.size() - 2);
  if (text.front() == '[') {
    const std::string inside = text.substr(1, text.size() - 2);
    if (!inside.empty() && inside.front() == '"') {
      std::vector<std::string> texts;
      for (const std::string& part : SplitAtText(inside, ",")) texts.push_back(part.substr(1, part.size() - 2));
      return texts;
    }
    if (inside.find('.') != std::string::npos) {
      std::vector<double> floats;
      for (const std::string& part : SplitAtText(inside, ",")) floats.push_back(std::stod(part));
      return floats;
    }
    std::vector<int64_t> ints;
    if (!inside.empty()) {
      for (const std::string& part : SplitAtText(inside, ",")) ints.push_back(std::stoll(part));
    }
    return ints;
  }
  if (text.find_first_of(".e") != std::string::npos) return std::stod(text);
  return static_cast<int64_t>(std::stoll(text));
}

Tensor ParseTensor(const std::string& text) {
  const size_t open = text.find('[');
  const size_t close = text.find(']');
  const std::optional<DType> dtype = DTypeFromName(text.substr(0, open));
  if (!dtype || close == std::string::npos) throw std::runtime_error("not a tensor: " + text);
  Dims dims;
  std::string list = text.substr(open + 1, close - open - 1);
  if (!list.empty()) {
    for (const std::string& part : SplitAtText(list, ",")) dims.push_back(std::stoll(part));
  }
  Tensor tensor = Tensor::Zeros(*dtype, dims);
  std::istringstream elements(text.substr(close + 1));
  std::string element;
  int64_t at = 0;
  while (elements >> element) {
    if (at >= tensor.ref.elements()) throw std::runtime_error("too many elements: " + text);
    DispatchDType(*dtype, [&]<class T>() {
      if constexpr (std::is_integral_v<T>) {
        tensor.ref.as<T>()[at] =
            static_cast<T>(std::is_unsigned_v<T> ? static_cast<int64_t>(std::stoull(element)) : std::stoll(element));
      } else if constexpr (std::is_same_v<T, double>) {
        tensor.ref.as<T>()[at] = std::stod(element);
      } else {
        tensor.ref.as<T>()[at] = T(static_cast<float>(std::stod(element)));
      }
    });
    ++at;
  }
  if (at != tensor.ref.elements()) throw std::runtime_error("too few elements: " + text);
  return tensor;
}

FileCase ParseCase(const std::string& line) {
  const std::vector<std::string> fields = SplitAtText(line, " | ");
  if (fields.size() != 4) throw std::runtime_error("a case has four fields");
  FileCase result;
  result.text = line;
  const std::optional<TensorOp> op = TensorOpFromName(fields[0]);
  if (!op) throw std::runtime_error("no op " + fields[0]);
  result.op.op = *op;
  std::istringstream attributes(fields[1]);
  std::string attribute;
  while (attributes >> attribute) {
    const size_t equals = attribute.find('=');
    result.op.attributes.Set(attribute.substr(0, equals), ParseValue(attribute.substr(equals + 1)));
  }
  for (const std::string& part : SplitAtText(fields[2], ";")) {
    const std::string text = Trimmed(part);
    if (text == "_") {
      result.op.inputs.emplace_back();
      continue;
    }
    result.owned.push_back(ParseTensor(text));
    result.op.inputs.emplace_back(result.owned.back().ref);
  }
  for (const std::string& part : SplitAtText(fields[3], ";")) result.expected.push_back(ParseTensor(Trimmed(part)));
  result.op.outputs = result.expected.size();
  return result;
}

}  // namespace

std::vector<FileCase> ReadCaseFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::vector<FileCase> cases;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.empty() || line.front() == '#') continue;
    try {
      cases.push_back(ParseCase(line));
    } catch (const std::exception& error) {
      throw std::runtime_error("line " + std::to_string(number) + ": " + error.what());
    }
    cases.back().line = number;
  }
  return cases;
}

std::string Difference(const Tensor& got, const Tensor& expected) {
  if (got.dtype() != expected.dtype()) {
    return "dtype " + std::string(DTypeName(got.dtype())) + " instead of " + std::string(DTypeName(expected.dtype()));
  }
  if (!(got.dims() == expected.dims())) {
    return "dims " + got.dims().ToString() + " instead of " + expected.dims().ToString();
  }
  if (!IsFloat(got.dtype())) {
    const std::string_view a(got.ref.as<char>(), static_cast<size_t>(got.ref.bytes()));
    const std::string_view b(expected.ref.as<char>(), static_cast<size_t>(expected.ref.bytes()));
    if (a == b) return "";
  }
  const bool half = got.dtype() == DType::kF16 || got.dtype() == DType::kBF16;
  const double relative = IsFloat(got.dtype()) ? (half ? 1e-2 : 1e-5) : 0;
  const double absolute = IsFloat(got.dtype()) ? (half ? 1e-2 : 1e-6) : 0;
  const std::vector<double> a = Values(got.ref);
  const std::vector<double> b = Values(expected.ref);
  for (size_t i = 0; i < a.size(); ++i) {
    const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    if (same || std::fabs(a[i] - b[i]) <= absolute + relative * std::fabs(b[i])) continue;
    return "element " + std::to_string(i) + " is " + std::to_string(a[i]) + " instead of " + std::to_string(b[i]);
  }
  return "";
}

}  // namespace kiln::testing

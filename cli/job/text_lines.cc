#include "cli/job/text_lines.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "common/base/limits.h"

namespace kiln::cli {
namespace {

// The next number of a PGM header, comments skipped.
Result<int64_t> HeaderNumber(std::istream& file, const std::string& path) {
  while (file >> std::ws && file.peek() == '#') file.ignore(4096, '\n');
  int64_t value = 0;
  if (!(file >> value)) return Fail(ErrorCode::kMalformed, path + ": the PGM header ends early");
  return value;
}

}  // namespace

Result<TextLine> ReadTextLine(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Fail(ErrorCode::kNotFound, "cannot read " + path);
  char magic[2] = {};
  file.read(magic, 2);
  if (magic[0] != 'P' || magic[1] != '5') return Fail(ErrorCode::kMalformed, path + " is no binary PGM (P5) picture");
  ASSIGN_OR_RETURN(int64_t width, HeaderNumber(file, path));
  ASSIGN_OR_RETURN(int64_t height, HeaderNumber(file, path));
  ASSIGN_OR_RETURN(int64_t most, HeaderNumber(file, path));
  if (width < 1 || width > limits::kTextLineWidthMax || height < 1 || height > limits::kTextLineHeightMax ||
      most != 255)
    return Fail(ErrorCode::kLimitExceeded, path + ": " + std::to_string(width) + "x" + std::to_string(height) +
                                               " with largest value " + std::to_string(most) + "; needed: at most " +
                                               std::to_string(limits::kTextLineWidthMax) + "x" +
                                               std::to_string(limits::kTextLineHeightMax) + ", 255");
  file.get();  // the single white space before the pixels
  std::vector<uint8_t> pixels(static_cast<size_t>(width * height));
  if (!file.read(reinterpret_cast<char*>(pixels.data()), width * height))
    return Fail(ErrorCode::kMalformed, path + " ends before its pixels do");
  TextLine line{std::filesystem::path(path).stem().string(), Tensor::Allocate(DType::kF32, {1, 3, height, width}),
                width};
  float* values = line.input.ref.as<float>();
  for (int64_t channel = 0; channel < 3; ++channel)
    for (int64_t i = 0; i < width * height; ++i)
      *values++ = (static_cast<float>(pixels[static_cast<size_t>(i)]) / 255.0f - 0.5f) / 0.5f;
  return line;
}

Result<std::vector<TextLine>> ReadTextLines(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error))
    if (entry.path().extension() == ".pgm") paths.push_back(entry.path().string());
  if (error) return Fail(ErrorCode::kNotFound, "cannot list " + directory + ": " + error.message());
  if (paths.empty()) return Fail(ErrorCode::kNotFound, directory + " holds no .pgm pictures");
  std::sort(paths.begin(), paths.end());
  std::vector<TextLine> lines;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(TextLine line, ReadTextLine(path));
    lines.push_back(std::move(line));
  }
  return lines;
}

Result<std::vector<std::string>> ReadKeys(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Fail(ErrorCode::kNotFound, "cannot read the recogniser's keys from " + path);
  std::vector<std::string> keys;
  for (std::string key; std::getline(file, key);) {
    while (!key.empty() && (key.back() == '\r' || key.back() == '\n')) key.pop_back();
    keys.push_back(key);
  }
  return keys;
}

Result<DecodedText> DecodeText(const TensorRef& probabilities, const std::vector<std::string>& keys) {
  if (probabilities.dtype != DType::kF32 || probabilities.rank() != 3 || probabilities.dims[0] != 1 ||
      !probabilities.IsContiguous())
    return Fail(ErrorCode::kShapeMismatch,
                "the recogniser answered " + probabilities.dims.ToString() + "; expected f32[1, steps, classes]");
  const int64_t steps = probabilities.dims[1], classes = probabilities.dims[2];
  DecodedText decoded;
  double sum = 0;
  int64_t kept = 0, previous = 0;
  for (int64_t t = 0; t < steps; ++t) {
    const float* row = probabilities.as<const float>() + t * classes;
    const int64_t best = std::max_element(row, row + classes) - row;
    if (best != 0 && best != previous) {
      const auto index = static_cast<size_t>(best - 1);
      decoded.text += index < keys.size() ? keys[index] : " ";
      sum += row[best];
      ++kept;
    }
    previous = best;
  }
  decoded.confidence = kept == 0 ? 0 : sum / static_cast<double>(kept);
  return decoded;
}

}  // namespace kiln::cli

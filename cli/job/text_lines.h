// Text-line pictures as the PP-OCR recogniser wants them, and its answers as text.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/tensor/tensor.h"

namespace kiln::cli {

struct TextLine {
  std::string name;  // file name without folder and ending
  Tensor input;      // f32[1, 3, height, width], (x / 255 - 0.5) / 0.5, one grey channel three times
  int64_t width = 0;
};

// Every .pgm (P5, 8 bit) of a directory, by name. Malformed names the file and what is wrong.
Result<std::vector<TextLine>> ReadTextLines(const std::string& directory);
Result<TextLine> ReadTextLine(const std::string& path);

// One key per line; index 0 of the recogniser's classes is the blank, the last one a space.
Result<std::vector<std::string>> ReadKeys(const std::string& path);

struct DecodedText {
  std::string text;
  double confidence = 0;  // mean probability of the characters kept
};
// Greedy CTC: best class per step, repeats and blanks dropped. `probabilities` is f32[1, steps, classes].
Result<DecodedText> DecodeText(const TensorRef& probabilities, const std::vector<std::string>& keys);

}  // namespace kiln::cli

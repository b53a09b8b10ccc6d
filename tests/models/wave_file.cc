#include "tests/models/wave_file.h"

#include <cstring>
#include <fstream>
#include <iterator>

namespace kiln::testing {

Result<std::vector<float>> ReadWave(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Fail(ErrorCode::kNotFound, path.string() + " cannot be read");
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  const auto number = [&](size_t at, size_t size) {
    uint32_t value = 0;
    std::memcpy(&value, bytes.data() + at, size);
    return value;
  };
  const auto is = [&](size_t at, const char* tag) { return std::memcmp(bytes.data() + at, tag, 4) == 0; };
  const auto malformed = [&](const char* what) { return Fail(ErrorCode::kMalformed, path.string() + ": " + what); };
  if (bytes.size() < 12 || !is(0, "RIFF") || !is(8, "WAVE")) return malformed("no RIFF WAVE file");
  for (size_t at = 12; at + 8 <= bytes.size();) {
    const size_t size = number(at + 4, 4);
    if (size > bytes.size() - at - 8) return malformed("a chunk passes the end");
    if (is(at, "fmt ") && (size < 16 || number(at + 8, 2) != 1 || number(at + 10, 2) != 1 || number(at + 22, 2) != 16))
      return malformed("the samples are not 16-bit mono PCM");
    if (is(at, "data")) {
      std::vector<float> samples(size / 2);
      for (size_t i = 0; i < samples.size(); ++i) {
        int16_t sample = 0;
        std::memcpy(&sample, bytes.data() + at + 8 + 2 * i, 2);
        samples[i] = static_cast<float>(sample) / 32768.0f;
      }
      return samples;
    }
    at += 8 + size + size % 2;
  }
  return malformed("no data");
}

}  // namespace kiln::testing

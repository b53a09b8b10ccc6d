// Every target over its checked-in corpus: seeds, and the inputs that once went wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/fuzz/fuzz_target.h"

namespace kiln::fuzz {
namespace {

std::vector<std::filesystem::path> CorpusOf(std::string_view target) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(KILN_SOURCE_DIR "/tests/fuzz/corpus/" + std::string(target)))
    files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

class Corpus : public ::testing::TestWithParam<FuzzTarget> {};

TEST_P(Corpus, Replays) {
  const FuzzTarget& target = GetParam();
  const auto files = CorpusOf(target.name);
  EXPECT_GE(files.size(), 5u);
  for (const auto& path : files) {
    SCOPED_TRACE(path.filename().string());
    std::ifstream file(path, std::ios::binary);
    const std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(file), {}};
    EXPECT_LE(bytes.size(), target.max_bytes);
    target.run(bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Corpus, ::testing::ValuesIn(kFuzzTargets),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kiln::fuzz

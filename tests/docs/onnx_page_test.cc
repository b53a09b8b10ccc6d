// docs/onnx.md is what the tables say. KILN_WRITE_DOCS=1 (make docs) writes it anew.
#include "tests/docs/onnx_page.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace kiln::testing {
namespace {

TEST(OnnxPage, IsUpToDate) {
  const std::string path = KILN_SOURCE_DIR "/docs/onnx.md";
  const std::string page = OnnxPage(KILN_SOURCE_DIR "/tests/common/ops/cases.txt");
  if (std::getenv("KILN_WRITE_DOCS") != nullptr) std::ofstream(path) << page;
  std::stringstream stored;
  stored << std::ifstream(path).rdbuf();
  EXPECT_EQ(stored.str(), page) << "run `make docs`";
}

}  // namespace
}  // namespace kiln::testing

#include "common/process/process.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

namespace kiln {
namespace {

TEST(Process, NamesInItsLogAreOneLineAndNoCommandsToATerminal) {
  EXPECT_EXIT(
      {
        if (!InitProcess({"kiln-test", "info", false}).has_value()) std::exit(1);
        spdlog::info("model {} loaded", "x\x1b[2J\n2026-01-01 E forged: y");
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), " I kiln-test: model x\\\\x1b\\[2J\\\\n2026-01-01 E forged: y loaded\n");
}

}  // namespace
}  // namespace kiln

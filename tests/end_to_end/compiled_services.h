// The services that plans come from, started once for all tests of a suite.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "cli/onnx_test/compiled_runner.h"

namespace kiln::testing {

class CompiledServicesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto directory = std::filesystem::temp_directory_path() / ("kiln-plans-" + std::to_string(getpid()));
    auto services = onnx_test::CompiledServices::Start(directory.string(), KILN_BIN_DIR);
    ASSERT_TRUE(services.has_value()) << ToString(services.error());
    services_ = *std::move(services);
  }
  static void TearDownTestSuite() { services_.reset(); }

  static inline std::unique_ptr<onnx_test::CompiledServices> services_;
};

}  // namespace kiln::testing

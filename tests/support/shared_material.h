// Models and test archives beside the repository: …/shared. A tree without it runs every other test.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>

namespace kiln {

inline std::filesystem::path SharedDirectory() {
  return std::filesystem::path(KILN_SOURCE_DIR).parent_path() / "shared";
}

// Absolute tolerance of a model's vectors. Those of the QDQ form come from a runtime that fuses it into integer
// operators; without fusion, which onnxruntime without optimisations agrees with, an output may be one quantisation
// step of 1/255 away.
inline double VectorTolerance(const std::filesystem::path& model) {
  return model.stem().string().ends_with("_qdq") ? 1.0 / 255 + 1e-4 : 1e-4;
}

}  // namespace kiln

// Ends the test where `path`, in SharedDirectory(), is absent: skipped where there is no shared/ at all, failed where
// there is one without it.
#define KILN_NEEDS_SHARED(path)                                                                  \
  if (!std::filesystem::exists(path)) {                                                          \
    ASSERT_FALSE(std::filesystem::exists(::kiln::SharedDirectory())) << (path) << " is missing"; \
    GTEST_SKIP() << (path) << " is absent: the test did not run";                                \
  }                                                                                              \
  static_assert(true)

#include "common/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace kiln {

void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "kiln: check failed: %s (%s:%d). This is a defect of Kiln.\n", condition, file, line);
  std::abort();
}

}  // namespace kiln

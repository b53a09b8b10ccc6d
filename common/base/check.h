// CHECK is for bugs: a false condition is a defect of Kiln, never of its input. It prints and aborts.
#pragma once

namespace kiln {

[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

}  // namespace kiln

#define KILN_CHECK(condition)                              \
  do {                                                     \
    if (!(condition)) [[unlikely]]                         \
      ::kiln::CheckFailed(#condition, __FILE__, __LINE__); \
  } while (false)

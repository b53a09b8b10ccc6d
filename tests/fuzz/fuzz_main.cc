// One fuzz target as libFuzzer wants it; the build says which.
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kiln::fuzz::KILN_FUZZ_FUNCTION({data, size});
  return 0;
}

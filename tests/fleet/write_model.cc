// write_model DIRECTORY COLUMNS: the small model of the end-to-end tests as DIRECTORY/model.onnx.
#include <cstdio>
#include <cstdlib>

#include "tests/end_to_end/small_model.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: write_model DIRECTORY COLUMNS\n");
    return 2;
  }
  std::puts(kiln::testing::SmallModel(std::strtoll(argv[2], nullptr, 10)).WriteTo(argv[1]).c_str());
  return 0;
}

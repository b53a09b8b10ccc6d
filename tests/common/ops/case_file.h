// Reader of cases.txt: one op per line with inputs and expected outputs.
#pragma once

#include <string>
#include <vector>

#include "tests/common/ops/op_runner.h"

namespace kiln::testing {

struct FileCase {
  int line = 0;
  std::string text;
  OpCase op;
  std::vector<Tensor> owned;  // what op.inputs look at
  std::vector<Tensor> expected;
};

// Throws std::runtime_error naming the line: the file is part of the tests.
std::vector<FileCase> ReadCaseFile(const std::string& path);

// Empty when equal within the tolerance the file states; else what differs first.
std::string Difference(const Tensor& got, const Tensor& expected);

}  // namespace kiln::testing

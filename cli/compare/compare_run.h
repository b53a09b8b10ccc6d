// `kiln run --compare` and `kiln replay`.
#pragma once

#include <string>

#include "cli/run_inputs.h"
#include "common/base/result.h"

namespace kiln::cli {

struct CompareFlags {
  std::string model;
  InputFlags inputs;
  std::string replay = "kiln-replay.json";  // written when something differs
  bool keep_tensors = false;
};

// Every segment by its generic and by its exact plan beside the interpreter. Exit status 0: all agree, 1: something
// differs.
Result<int> RunCompare(const CompareFlags& flags);
// The call of a replay file. Exit status 1: the difference shows again.
Result<int> RunReplay(const std::string& path);

}  // namespace kiln::cli

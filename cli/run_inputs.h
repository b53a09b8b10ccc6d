// Inputs of `kiln run`: read from files, or random with sizes from the command line.
#pragma once

#include <map>
#include <random>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/worker_api/worker_api.h"
#include "vm-worker/onnx/dim_hints.h"

namespace CLI {
class App;
}

namespace kiln::cli {

// What the command line says about inputs.
struct InputFlags {
  std::vector<std::string> files;  // NAME=FILE.pb
  std::vector<std::string> dims;   // as ParseDimHint has them: SYMBOL or INPUT.AXIS, a size or a range, a divisor
  uint64_t seed = 1;               // of random inputs
  // --input, --dim, --seed.
  void AddOptions(CLI::App& command);
};

// Before a fleet is started for it: NotFound or InvalidArgument where the path is no file.
Status CheckIsFile(const std::string& path);

// Uniform in [-1, 1) for floats, small non-negative integers, random bools.
Tensor RandomTensor(DType dtype, const Dims& dims, std::mt19937_64& random);

// Makes the inputs of one run after the other. Not thread-safe.
class RunInputs {
 public:
  // InvalidArgument names the flag that is wrong.
  static Result<RunInputs> Parse(const std::vector<std::string>& dims, const std::vector<std::string>& files,
                                 uint64_t seed);

  // One tensor per declared input, in their order, then the optional inputs that files give. Ranges are drawn anew each
  // time, once per symbol. InvalidArgument names two flags that contradict each other.
  Result<std::vector<NamedTensor>> Next(const LoadReply& model);

 private:
  struct Sizes {
    DimHint hint;
    std::string text;  // as given
  };
  int64_t Draw(const DimHint& hint);
  Status CheckAgree(const LoadReply& model, std::map<std::string, int64_t>& drawn) const;
  Result<Dims> DimsFor(const ValueInfo& input, std::map<std::string, int64_t>& drawn);

  std::map<std::string, Sizes> sizes_;
  std::map<std::string, Tensor> read_;
  std::mt19937_64 random_;
};

}  // namespace kiln::cli

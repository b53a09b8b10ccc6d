// PerfMap: names of generated kernels for perf(1), which reads /tmp/perf-PID.map when it meets code of no file.
#pragma once

#include <cstdio>
#include <memory>
#include <mutex>
#include <string>

#include "common/artifact/plan.h"
#include "common/base/result.h"
#include "common/native/code_mapping.h"

namespace kiln {

// Thread-safe. Lines are only added: code that is unmapped later keeps its line, as perf expects.
class PerfMap {
 public:
  static Result<std::unique_ptr<PerfMap>> Open(const std::string& path);
  static std::string DefaultPath();  // of this process
  ~PerfMap();
  PerfMap(const PerfMap&) = delete;
  PerfMap& operator=(const PerfMap&) = delete;

  // A line per kernel: address, size, "kiln MODEL: LABEL [kernel id]" with the label of the first step that uses it.
  void Add(const std::string& model, const Plan& plan, const CodeMapping& code);

 private:
  explicit PerfMap(FILE* file) : file_(file) {}
  std::mutex mutex_;
  FILE* file_;
};

}  // namespace kiln

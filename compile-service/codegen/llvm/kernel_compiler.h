// KernelCompiler: KernelSpec in, flat position-independent code out.
//
// One vector-IR emission per spec, no LLVM optimisation pipeline, one long-lived TargetMachine per target, and a linker
// of our own that accepts only PC-relative references inside the object: a blob never has an undefined symbol.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/artifact/target.h"
#include "common/base/result.h"
#include "compile-service/ir/kernel_spec.h"

namespace kiln::codegen {

// Code and constants of one kernel; entry at `entry_offset`. Meant to be copied to 64-byte aligned memory and made
// executable.
struct KernelCode {
  std::vector<uint8_t> bytes;  // starts with the header described in kernel_blob.h
  int64_t emit_us = 0;         // building the vector IR
  int64_t codegen_us = 0;      // LLVM's part
};

// Not thread-safe: one per thread. LLVM's fatal errors end the process, which is why the service runs this in a child.
class KernelCompiler {
 public:
  static Result<std::unique_ptr<KernelCompiler>> Create(Target target);
  ~KernelCompiler();

  Result<KernelCode> Compile(const ir::KernelSpec& spec);
  // The assembly with our comments, for tests.
  Result<std::string> EmitAssembly(const ir::KernelSpec& spec);

 private:
  struct Impl;
  explicit KernelCompiler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln::codegen

#include "tests/support/cuda/shim_kernels.h"

#include <dlfcn.h>

#include <fstream>

#include "tests/support/cuda/shim_compiler.h"
#include "tests/support/temp_directory.h"

namespace kiln::testing {
namespace {

std::string TextOf(const std::vector<codegen::cuda::CudaSource>& sources) {
  std::string text, table;
  for (size_t i = 0; i < sources.size(); ++i) {
    const std::string n = std::to_string(i);
    text += "namespace kernel_" + n + " {\n#define kiln_kernel kiln_kernel_" + n + "\n#line 1 \"kernel " + n + "\"\n" +
            sources[i].text + "\n#undef kiln_kernel\nKILN_SHIM_RUN(Run, kiln_kernel_" + n + ")\n}\n";
    table += "kernel_" + n + "::Run, ";
  }
  return text + "static void (*const kernels[])(void*) = {" + table + R"(};
KILN_SHIM_EXPORT int kiln_shim_launch_one(int kernel, unsigned grid, unsigned block, void** parameters, int schedule,
                                          uint64_t seed) {
  return kiln_shim::Launch(kernels[kernel], parameters, grid, block, static_cast<kiln_shim::Schedule>(schedule), seed);
}
)";
}

}  // namespace

ShimKernels::~ShimKernels() {
  if (library_ != nullptr) dlclose(library_);
}

size_t ShimKernels::Add(codegen::cuda::CudaSource source) {
  sources_.push_back(std::move(source));
  return sources_.size() - 1;
}

std::optional<std::string> ShimKernels::Build() {
  const TempDirectory directory;
  const std::string source = directory.path() + "/kernels.cu", library = directory.path() + "/kernels.so";
  std::ofstream(source) << TextOf(sources_);
  if (auto failure = CompileForShim(source, library)) return failure;
  library_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) return std::string(dlerror());
  launch_ = reinterpret_cast<Launch>(dlsym(library_, "kiln_shim_launch_one"));
  error_ = reinterpret_cast<const char* (*)()>(dlsym(library_, "kiln_shim_error"));
  if (launch_ == nullptr || error_ == nullptr) return "the library has no entries";
  return std::nullopt;
}

std::optional<std::string> ShimKernels::Run(size_t kernel, std::span<void* const> pointers,
                                            std::span<const int64_t> dims, int64_t begin, int64_t end,
                                            ShimSchedule schedule, uint64_t seed) const {
  if (begin >= end) return std::nullopt;
  const codegen::cuda::CudaSource& source = sources_[kernel];
  std::vector<uint64_t> args;  // struct Args
  for (void* pointer : pointers) args.push_back(reinterpret_cast<uint64_t>(pointer));
  if (args.empty()) args.push_back(0);
  for (int64_t dim : dims) args.push_back(static_cast<uint64_t>(dim));
  if (dims.empty()) args.push_back(0);
  long long first = begin, last = end;
  void* parameters[] = {args.data(), &first, &last};
  const int64_t blocks = (end - begin + source.items_per_block - 1) / source.items_per_block;
  const int result = launch_(static_cast<int>(kernel), static_cast<unsigned>(blocks), source.threads, parameters,
                             static_cast<int>(schedule), seed);
  if (result == 0) return std::nullopt;
  return std::string(error_());
}

}  // namespace kiln::testing

// A libnvrtc.so.13 for tests, chosen by --nvrtc or LD_LIBRARY_PATH: the entry points that production uses, over the
// host's compiler and cuda_shim.h. What it returns as an image is a shared library that runs the same text on the
// processor (kiln_shim_launch): equal texts give equal bytes.
//
// It refuses what NVRTC or production's rules refuse: an include directive, an option that it does not know, no target.
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "tests/support/cuda/shim_compiler.h"
#include "tests/support/temp_directory.h"

namespace {

enum Result {
  kSuccess = 0,
  kInvalidInput = 3,
  kInvalidProgram = 4,
  kInvalidOption = 5,
  kCompilation = 6,
  kCancelled = 13,
};

struct Program {
  std::string source, log, image;
  int (*flow)(void*, void*) = nullptr;
  void* payload = nullptr;
  bool GoesOn() const { return flow == nullptr || flow(payload, nullptr) == 0; }
};

// The target, "sm_90"; empty where an option is none of those that are known.
std::string TargetOf(int count, const char* const* options) {
  constexpr std::string_view kArchitecture = "--gpu-architecture=";
  constexpr std::string_view kKnown[] = {"--std=c++17",
                                         "--fmad=false",
                                         "--no-cache",
                                         "--ptxas-options=-v",
                                         "--ptxas-options=-warn-spills",
                                         "--ptxas-options=-Werror",
                                         "--diag-suppress=177"};
  std::string target;
  for (int i = 0; i < count; ++i) {
    const std::string_view option = options[i];
    if (option.starts_with(kArchitecture)) {
      target = option.substr(kArchitecture.size());
      continue;
    }
    bool known = false;
    for (const std::string_view name : kKnown) known = known || option == name;
    if (!known) return {};
  }
  return target.starts_with("sm_") ? target : std::string();
}

Result Compile(Program& program, const std::string& target) {
  if (program.source.find("#include") != std::string::npos) {
    program.log = "an include directive: there are no headers";
    return kCompilation;
  }
  const kiln::testing::TempDirectory directory;
  const std::string source = directory.path() + "/kernel.cu", library = directory.path() + "/kernel.so";
  // The target is part of what is compiled, as it is of a real image.
  std::ofstream(source) << program.source << "\nKILN_SHIM_ENTRY(kiln_kernel)\n"
                        << "KILN_SHIM_EXPORT const char* kiln_shim_target() { return \"" << target << "\"; }\n";
  if (const auto failure = kiln::testing::CompileForShim(source, library)) {
    program.log = *failure;
    return kCompilation;
  }
  std::ifstream file(library, std::ios::binary);
  program.image.assign(std::istreambuf_iterator<char>(file), {});
  program.log =
      "ptxas info    : 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 32 registers, used 1 barriers, 0 bytes smem";
  return kSuccess;
}

int Copy(const std::string& text, char* out) {
  std::memcpy(out, text.data(), text.size());
  return kSuccess;
}

}  // namespace

#define KILN_DOUBLE extern "C" __attribute__((visibility("default")))

KILN_DOUBLE const char* nvrtcGetErrorString(int result) {
  switch (result) {
    case kSuccess:
      return "NVRTC_SUCCESS";
    case kInvalidOption:
      return "NVRTC_ERROR_INVALID_OPTION";
    case kCompilation:
      return "NVRTC_ERROR_COMPILATION";
    case kCancelled:
      return "NVRTC_ERROR_CANCELLED";
    default:
      return "NVRTC error";
  }
}
KILN_DOUBLE int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return kSuccess;
}
KILN_DOUBLE int nvrtcCreateProgram(void** program, const char* source, const char*, int headers, const char* const*,
                                   const char* const*) {
  if (source == nullptr || headers != 0) return kInvalidInput;
  auto* made = new Program;
  made->source = source;
  *program = made;
  return kSuccess;
}
KILN_DOUBLE int nvrtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  *program = nullptr;
  return kSuccess;
}
KILN_DOUBLE int nvrtcSetFlowCallback(void* program, int (*flow)(void*, void*), void* payload) {
  static_cast<Program*>(program)->flow = flow;
  static_cast<Program*>(program)->payload = payload;
  return kSuccess;
}
KILN_DOUBLE int nvrtcCompileProgram(void* program, int count, const char* const* options) {
  auto& asked = *static_cast<Program*>(program);
  const std::string target = TargetOf(count, options);
  if (target.empty()) return kInvalidOption;
  if (!asked.GoesOn()) return kCancelled;
  const Result result = Compile(asked, target);
  return asked.GoesOn() ? result : kCancelled;
}
KILN_DOUBLE int nvrtcGetProgramLogSize(void* program, size_t* size) {
  *size = static_cast<Program*>(program)->log.size() + 1;
  return kSuccess;
}
KILN_DOUBLE int nvrtcGetProgramLog(void* program, char* log) {
  std::memcpy(log, static_cast<Program*>(program)->log.c_str(), static_cast<Program*>(program)->log.size() + 1);
  return kSuccess;
}
KILN_DOUBLE int nvrtcGetCUBINSize(void* program, size_t* size) {
  *size = static_cast<Program*>(program)->image.size();
  return *size == 0 ? kInvalidProgram : kSuccess;
}
KILN_DOUBLE int nvrtcGetCUBIN(void* program, char* image) {
  return Copy(static_cast<Program*>(program)->image, image);
}

#include "compile-service/codegen/cuda/nvrtc.h"

#include <dlfcn.h>

#include <charconv>
#include <ctime>

#include "common/base/limits.h"
#include "compile-service/codegen/cuda/nvrtc_build.h"

namespace kiln::codegen::cuda {

namespace {

constexpr int kMajor = 13;
constexpr size_t kLogBytesMax = 64 << 10;  // of an error

// Results and handles as nvrtc.h has them.
using Program = void*;
constexpr int kSuccess = 0;

}  // namespace

// nvrtcFlowCallback: asked from time to time, ends the compilation with anything but 0.
using FlowCallback = int (*)(void* payload, void* reserved);

struct Nvrtc::Api {
  void* library = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*version)(int*, int*) = nullptr;
  int (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  int (*destroy)(Program*) = nullptr;
  int (*compile)(Program, int, const char* const*) = nullptr;
  int (*log_size)(Program, size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  int (*image_size)(Program, size_t*) = nullptr;
  int (*image)(Program, char*) = nullptr;
  int (*flow)(Program, FlowCallback, void*) = nullptr;

  ~Api() {
    if (library != nullptr) dlclose(library);
  }
  template <class F>
  Status Find(const char* name, F* function) {
    *function = reinterpret_cast<F>(dlsym(library, name));
    if (*function == nullptr)
      return Fail(ErrorCode::kUnsupported, "the library has no " + std::string(name) + "; it is no NVRTC of CUDA 13");
    return {};
  }
  Status FindAll() {
    RETURN_IF_ERROR(Find("nvrtcGetErrorString", &error_string));
    RETURN_IF_ERROR(Find("nvrtcVersion", &version));
    RETURN_IF_ERROR(Find("nvrtcCreateProgram", &create));
    RETURN_IF_ERROR(Find("nvrtcDestroyProgram", &destroy));
    RETURN_IF_ERROR(Find("nvrtcCompileProgram", &compile));
    RETURN_IF_ERROR(Find("nvrtcGetProgramLogSize", &log_size));
    RETURN_IF_ERROR(Find("nvrtcGetProgramLog", &log));
    RETURN_IF_ERROR(Find("nvrtcGetCUBINSize", &image_size));
    RETURN_IF_ERROR(Find("nvrtcGetCUBIN", &image));
    return Find("nvrtcSetFlowCallback", &flow);
  }
  Status Check(int result, const char* what) const {
    if (result == kSuccess) return {};
    return Fail(ErrorCode::kCompileFailed, std::string(what) + ": " + error_string(result));
  }
  Result<std::string> Log(Program program) const {
    size_t size = 0;
    RETURN_IF_ERROR(Check(log_size(program, &size), "nvrtcGetProgramLogSize"));
    std::string text(size, '\0');
    if (size > 0) RETURN_IF_ERROR(Check(log(program, text.data()), "nvrtcGetProgramLog"));
    while (!text.empty() && (text.back() == '\0' || text.back() == '\n')) text.pop_back();
    return text;
  }
};

namespace {

int64_t CpuMs() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

struct Deadline {
  int64_t end_ms = 0;
  bool passed = false;
};

int AskDeadline(void* payload, void* /*reserved*/) {
  auto* deadline = static_cast<Deadline*>(payload);
  if (CpuMs() < deadline->end_ms) return 0;
  deadline->passed = true;
  return 1;
}

// The number in front of `what` in the log.
uint32_t NumberBefore(std::string_view log, std::string_view what) {
  const size_t at = log.find(what);
  if (at == std::string_view::npos) return 0;
  size_t begin = at;
  while (begin > 0 && log[begin - 1] >= '0' && log[begin - 1] <= '9') --begin;
  uint32_t number = 0;
  std::from_chars(log.data() + begin, log.data() + at, number);
  return number;
}

}  // namespace

Result<KernelResources> ParseResources(std::string_view log) {
  if (log.find(" registers") == std::string_view::npos)
    return Fail(ErrorCode::kMalformed, "the compiler's log says nothing of registers: \"" +
                                           std::string(log.substr(0, 200)) + "\"; --ptxas-options=-v makes it");
  return KernelResources{NumberBefore(log, " registers"), NumberBefore(log, " barriers"),
                         NumberBefore(log, " bytes smem"), NumberBefore(log, " bytes stack frame"),
                         NumberBefore(log, " bytes spill stores") + NumberBefore(log, " bytes spill loads")};
}

Nvrtc::Nvrtc(std::unique_ptr<Api> api) : api_(std::move(api)) {}
Nvrtc::~Nvrtc() = default;

Result<std::unique_ptr<Nvrtc>> Nvrtc::Open(const std::string& path) {
  auto api = std::make_unique<Api>();
  api->library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (api->library == nullptr) {
    const char* why = dlerror();
    return Fail(ErrorCode::kNotFound, "cannot open NVRTC: " + std::string(why == nullptr ? path.c_str() : why));
  }
  if (Status status = api->FindAll(); !status.has_value()) return FailIn(path, status.error());
  int major = 0, minor = 0;
  RETURN_IF_ERROR(api->Check(api->version(&major, &minor), "nvrtcVersion"));
  if (major != kMajor)
    return Fail(ErrorCode::kUnsupported, path + " is NVRTC " + std::to_string(major) + "." + std::to_string(minor) +
                                             "; this build compiles with CUDA " + std::to_string(kMajor) + "'s");
  std::unique_ptr<Nvrtc> nvrtc(new Nvrtc(std::move(api)));
  nvrtc->driver_version_ = static_cast<uint32_t>(1000 * major);
  return nvrtc;
}

Result<NvrtcOutput> Nvrtc::Compile(const std::string& source, Target target, int64_t cpu_ms) {
  Program program = nullptr;
  RETURN_IF_ERROR(
      api_->Check(api_->create(&program, source.c_str(), "kernel.cu", 0, nullptr, nullptr), "nvrtcCreateProgram"));
  struct Guard {
    Api& api;
    Program* program;
    ~Guard() { api.destroy(program); }
  } guard{*api_, &program};
  Deadline deadline{CpuMs() + cpu_ms};
  RETURN_IF_ERROR(api_->Check(api_->flow(program, AskDeadline, &deadline), "nvrtcSetFlowCallback"));
  const std::vector<std::string> options = NvrtcOptions(target);
  std::vector<const char*> texts;
  for (const std::string& option : options) texts.push_back(option.c_str());
  const int result = api_->compile(program, static_cast<int>(texts.size()), texts.data());
  if (deadline.passed)
    return Fail(ErrorCode::kDeadlineExceeded,
                "NVRTC took more than " + std::to_string(cpu_ms) + " ms of processor time for one kernel");
  ASSIGN_OR_RETURN(const std::string log, api_->Log(program));
  if (result != kSuccess)
    return Fail(ErrorCode::kCompileFailed, "NVRTC, for " + std::string(InfoOf(target).name) + ": " +
                                               api_->error_string(result) + ": " + log.substr(0, kLogBytesMax));
  NvrtcOutput output;
  ASSIGN_OR_RETURN(output.resources, ParseResources(log));
  size_t size = 0;
  RETURN_IF_ERROR(api_->Check(api_->image_size(program, &size), "nvrtcGetCUBINSize"));
  if (size == 0 || size > limits::kKernelBlobBytesMax)
    return Fail(ErrorCode::kLimitExceeded, "NVRTC's image has " + std::to_string(size) + " bytes; it may have 1 to " +
                                               std::to_string(limits::kKernelBlobBytesMax));
  output.image.resize(size);
  RETURN_IF_ERROR(api_->Check(api_->image(program, reinterpret_cast<char*>(output.image.data())), "nvrtcGetCUBIN"));
  return output;
}

}  // namespace kiln::codegen::cuda

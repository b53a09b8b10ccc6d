#include "vm-worker/dispatch/perf_map.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "vm-worker/dispatch/kernel_names.h"

namespace kiln {

std::string PerfMap::DefaultPath() {
  return "/tmp/perf-" + std::to_string(getpid()) + ".map";
}

Result<std::unique_ptr<PerfMap>> PerfMap::Open(const std::string& path) {
  // The name is known beforehand and the directory may be anybody's: no link is followed.
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
  FILE* file = descriptor < 0 ? nullptr : fdopen(descriptor, "w");
  if (file == nullptr) return Fail(ErrorCode::kIoError, "cannot write " + path + ": " + std::strerror(errno));
  return std::unique_ptr<PerfMap>(new PerfMap(file));
}

PerfMap::~PerfMap() {
  std::fclose(file_);
}

void PerfMap::Add(const std::string& model, const Plan& plan, const CodeMapping& code) {
  std::lock_guard lock(mutex_);
  for (size_t kernel = 0; kernel < code.kernels(); ++kernel) {
    const std::string name = KernelName(model, plan, kernel);
    const std::span<const uint8_t> bytes = code.blob(kernel);
    std::fprintf(file_, "%llx %zx %s\n", static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(bytes.data())),
                 bytes.size(), name.c_str());
  }
  std::fflush(file_);
}

}  // namespace kiln

#include "tests/support/emulated_kernel.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "common/artifact/kernel_blob.h"

extern char** environ;

namespace kiln::testing {
namespace {

constexpr size_t kAlignment = 64;

struct Emulator {
  const char* program;
  const char* cpu;
  const char* runner;  // empty: not built
  int64_t slack =
      0;  // bytes behind a buffer that masked-out lanes may touch: the emulator reads them, processors do not
};

std::optional<Emulator> EmulatorOf(Target target) {
  switch (target) {
    case Target::kX86V2:
      return Emulator{"qemu-x86_64", "Nehalem", KILN_RUNNER_X86};
    case Target::kX86V3:
      return Emulator{"qemu-x86_64", "Haswell", KILN_RUNNER_X86, 4096};
    case Target::kAArch64:
      return Emulator{"qemu-aarch64", "cortex-a72", KILN_RUNNER_ARM};
    case Target::kX86V4:
    case Target::kX86V4Bf16Vnni:
    case Target::kSm80:
    case Target::kSm90:
    case Target::kSm100:
    case Target::kSm120:
      return std::nullopt;
  }
  return std::nullopt;
}

bool IsInstalled(const std::string& program) {
  std::string path = std::getenv("PATH") == nullptr ? "" : std::getenv("PATH");
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    if (access((path.substr(begin, end - begin) + "/" + program).c_str(), X_OK) == 0) return true;
    begin = end + 1;
  }
  return false;
}

size_t RoundUp(size_t value) {
  return (value + kAlignment - 1) / kAlignment * kAlignment;
}

// As kernel_runner.c reads it; `first_buffer`: where the buffers begin.
std::vector<uint8_t> FileFor(const KernelBlobView& kernel, int64_t slack, std::span<const EmulatedBuffer> buffers,
                             std::span<const int64_t> dims, std::span<const std::pair<int64_t, int64_t>> parts,
                             size_t* first_buffer) {
  std::vector<int64_t> header = {static_cast<int64_t>(kernel.bytes.size()), kernel.entry_offset,
                                 static_cast<int64_t>(buffers.size()),      static_cast<int64_t>(dims.size()),
                                 static_cast<int64_t>(parts.size()),        slack};
  for (const EmulatedBuffer& buffer : buffers) header.push_back(static_cast<int64_t>(buffer.bytes.size()));
  for (const EmulatedBuffer& buffer : buffers) header.push_back(buffer.origin);
  header.insert(header.end(), dims.begin(), dims.end());
  for (const auto& [begin, end] : parts) header.insert(header.end(), {begin, end});
  const size_t code = RoundUp(header.size() * sizeof(int64_t));
  *first_buffer = code + RoundUp(kernel.bytes.size());
  size_t size = *first_buffer;
  for (const EmulatedBuffer& buffer : buffers) size += RoundUp(buffer.bytes.size());
  std::vector<uint8_t> file(size, 0);
  std::memcpy(file.data(), header.data(), header.size() * sizeof(int64_t));
  std::memcpy(file.data() + code, kernel.bytes.data(), kernel.bytes.size());
  size_t at = *first_buffer;
  for (const auto& [memory, origin] : buffers) {
    if (!memory.empty()) std::memcpy(file.data() + at, memory.data(), memory.size());
    at += RoundUp(memory.size());
  }
  return file;
}

std::optional<std::string> Spawn(const Emulator& emulator, const std::string& file, size_t size) {
  std::string text = std::to_string(size);
  std::vector<std::string> words = {emulator.program, "-cpu", emulator.cpu, emulator.runner, file, text};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  if (posix_spawnp(&child, emulator.program, nullptr, nullptr, arguments.data(), environ) != 0)
    return std::string(emulator.program) + " did not start";
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
  return std::string(emulator.program) + " -cpu " + emulator.cpu +
         (WIFSIGNALED(status) ? " ended by signal " + std::to_string(WTERMSIG(status))
                              : " ended with " + std::to_string(WEXITSTATUS(status)));
}

}  // namespace

std::vector<Target> EmulatedTargets() {
  std::vector<Target> targets;
  for (Target target : {Target::kX86V2, Target::kX86V3, Target::kX86V4, Target::kX86V4Bf16Vnni, Target::kAArch64})
    if (EmulatorOf(target)) targets.push_back(target);
  return targets;
}

std::optional<std::string> WhyNotEmulated(Target target) {
  const std::optional<Emulator> emulator = EmulatorOf(target);
  if (!emulator) return "no emulator for " + std::string(InfoOf(target).name);
  if (*emulator->runner == '\0')
    return "no compiler for the runner of " + std::string(InfoOf(target).name) +
           " kernels (package gcc-aarch64-linux-gnu); install it and configure again";
  if (!IsInstalled(emulator->program)) return std::string(emulator->program) + " is not installed (package qemu-user)";
  return std::nullopt;
}

std::optional<std::string> RunEmulated(Target target, std::span<const uint8_t> blob,
                                       std::span<const EmulatedBuffer> buffers, std::span<const int64_t> dims,
                                       std::span<const std::pair<int64_t, int64_t>> parts) {
  if (std::optional<std::string> why = WhyNotEmulated(target)) return why;
  const auto kernel = ParseKernelBlob(blob);
  if (!kernel.has_value()) return ToString(kernel.error());
  size_t first_buffer = 0;
  std::vector<uint8_t> bytes = FileFor(*kernel, EmulatorOf(target)->slack, buffers, dims, parts, &first_buffer);
  std::string path = "/tmp/kiln_emulated_XXXXXX";
  const int file = mkstemp(path.data());
  if (file < 0) return "no temporary file";
  const auto size = static_cast<ssize_t>(bytes.size());
  std::optional<std::string> failure;
  if (write(file, bytes.data(), bytes.size()) != size) failure = "the temporary file was not written";
  if (!failure) failure = Spawn(*EmulatorOf(target), path, bytes.size());
  if (!failure && pread(file, bytes.data(), bytes.size(), 0) != size) failure = "the temporary file was not read";
  close(file);
  unlink(path.c_str());
  if (failure) return failure;
  for (const auto& [memory, origin] : buffers) {
    if (!memory.empty()) std::memcpy(memory.data(), bytes.data() + first_buffer, memory.size());
    first_buffer += RoundUp(memory.size());
  }
  return std::nullopt;
}

}  // namespace kiln::testing

#include <dlfcn.h>
#include <elf.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "tests/support/cuda_driver/cuda_double.h"

namespace cuda_double {
namespace {

// How long an image is, which its loader is not told: as far as its headers reach.
size_t ImageBytes(const char* image) {
  Elf64_Ehdr header;
  memcpy(&header, image, sizeof(header));
  size_t end = header.e_shoff + size_t{header.e_shnum} * header.e_shentsize;
  for (size_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    memcpy(&segment, image + header.e_phoff + i * header.e_phentsize, sizeof(segment));
    end = std::max<size_t>(end, segment.p_offset + segment.p_filesz);
  }
  for (size_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    memcpy(&section, image + header.e_shoff + i * header.e_shentsize, sizeof(section));
    if (section.sh_type != SHT_NOBITS) end = std::max<size_t>(end, section.sh_offset + section.sh_size);
  }
  return end;
}

thread_local sigjmp_buf* landing = nullptr;
struct sigaction previous[2];
constexpr int kFaults[2] = {SIGSEGV, SIGBUS};

void OnFault(int signal, siginfo_t*, void*) {
  if (landing != nullptr) siglongjmp(*landing, 1);
  // Not the kernel's: whoever was there before takes it when the instruction runs again.
  for (int i = 0; i < 2; ++i)
    if (kFaults[i] == signal) sigaction(signal, &previous[i], nullptr);
}

}  // namespace

Module* LoadModule(const void* image) {
  const auto* bytes = static_cast<const char*>(image);
  if (memcmp(bytes, ELFMAG, SELFMAG) != 0) return nullptr;
  auto* module = new Module();
  module->file = memfd_create("kiln-module", MFD_CLOEXEC);
  const size_t size = ImageBytes(bytes);
  if (module->file < 0 || write(module->file, bytes, size) != static_cast<ssize_t>(size)) {
    UnloadModule(module);
    return nullptr;
  }
  // The file stays open: its number is the library's name, which no other one must have.
  module->library = dlopen(("/proc/self/fd/" + std::to_string(module->file)).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module->library != nullptr) {
    module->launch =
        reinterpret_cast<int (*)(unsigned, unsigned, unsigned, void**)>(dlsym(module->library, "kiln_shim_launch"));
    module->error = reinterpret_cast<const char* (*)()>(dlsym(module->library, "kiln_shim_error"));
  }
  if (module->launch != nullptr) return module;
  UnloadModule(module);
  return nullptr;
}

void UnloadModule(Module* module) {
  if (module->library != nullptr) dlclose(module->library);
  if (module->file >= 0) close(module->file);
  delete module;
}

int RunGuarded(const Module& module, unsigned grid, unsigned block, unsigned shared, void** parameters) {
  static thread_local char stack[64 << 10];
  stack_t own = {}, before = {};
  own.ss_sp = stack;
  own.ss_size = sizeof(stack);
  sigaltstack(&own, &before);
  struct sigaction action = {};
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (int i = 0; i < 2; ++i) sigaction(kFaults[i], &action, &previous[i]);
  sigjmp_buf here;
  volatile int code = kIllegalAddress;
  if (sigsetjmp(here, 1) == 0) {
    landing = &here;
    code = module.launch(grid, block, shared, parameters);
  }
  landing = nullptr;
  for (int i = 0; i < 2; ++i) sigaction(kFaults[i], &previous[i], nullptr);
  before.ss_flags &= SS_DISABLE;
  sigaltstack(&before, nullptr);
  return code;
}

}  // namespace cuda_double

// The entry points. Parameter types are spelled as the driver's ABI has them; the worker's own declarations are not
// used, so that a wrong one shows.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "tests/support/cuda_driver/cuda_double.h"

namespace cuda_double {

State& TheState() {
  static State* const state = new State();
  return *state;
}

Settings ReadSettings() {
  Settings settings;
  const char* text = getenv("KILN_CUDA_DOUBLE");
  std::string_view left = text == nullptr ? "" : text;
  while (!left.empty()) {
    const std::string item(left.substr(0, left.find(';')));
    left.remove_prefix(std::min(left.size(), item.size() + 1));
    const size_t equals = item.find('=');
    const std::string name = item.substr(0, equals), value = equals == std::string::npos ? "" : item.substr(equals + 1);
    if (name == "capability") sscanf(value.c_str(), "%d.%d", &settings.major, &settings.minor);
    if (name == "memory") settings.memory = strtoull(value.c_str(), nullptr, 10);
    if (name == "driver") settings.driver = atoi(value.c_str());
    if (name == "devices") settings.devices = atoi(value.c_str());
    if (name == "init") settings.init = atoi(value.c_str());
    if (name == "stub") settings.stub = true;
    if (name == "hang") settings.hang = strtoull(value.c_str(), nullptr, 10);
    if (name == "fail")
      for (const char* at = value.c_str(); at != nullptr && *at != '\0';) {
        unsigned long long launch = 0;
        int code = 0;
        if (sscanf(at, "%llu:%d", &launch, &code) == 2) settings.fail[launch] = code;
        at = strchr(at, ',');
        if (at != nullptr) ++at;
      }
  }
  return settings;
}

namespace {

thread_local bool current = false;  // this thread has a context

// Errors of kernels and of the device stay.
bool Stays(int code) {
  return code == kIllegalAddress || code == 702 || code == 214 || (code >= 709 && code <= 719) || code == 999;
}

// What every call that needs a context answers first.
int Ready() {
  const State& state = TheState();
  if (!state.initialised) return 3;
  if (state.broken != 0) return state.broken;
  return current ? kSuccess : kInvalidContext;
}

struct Named {
  int code;
  const char *name, *text;
};
constexpr Named kNames[] = {{1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
                            {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
                            {34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
                            {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
                            {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
                            {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
                            {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
                            {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
                            {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}};

int GetErrorName(int code, const char** text) {
  for (const Named& named : kNames)
    if (named.code == code) return *text = named.name, kSuccess;
  return *text = nullptr, kInvalidValue;
}
int GetErrorString(int code, const char** text) {
  for (const Named& named : kNames)
    if (named.code == code) return *text = named.text, kSuccess;
  return *text = nullptr, kInvalidValue;
}

int DeviceGetCount(int* count) {
  return *count = TheState().settings.devices, kSuccess;
}
int DeviceGet(int* device, int ordinal) {
  if (ordinal < 0 || ordinal >= TheState().settings.devices) return kInvalidDevice;
  return *device = ordinal, kSuccess;
}
int DeviceGetName(char* name, int bytes, int) {
  return snprintf(name, static_cast<size_t>(bytes), "Kiln's double"), kSuccess;
}
int DeviceGetAttribute(int* value, int attribute, int) {
  const Settings& settings = TheState().settings;
  if (attribute == 75) return *value = settings.major, kSuccess;
  if (attribute == 76) return *value = settings.minor, kSuccess;
  if (attribute == 97) return *value = 227 << 10, kSuccess;
  return kInvalidValue;
}
int PrimaryCtxRetain(void** context, int) {
  return *context = &TheState(), kSuccess;
}
int PrimaryCtxRelease(int) {
  return kSuccess;
}
int CtxSetCurrent(void* context) {
  if (TheState().broken != 0) return TheState().broken;
  current = context != nullptr;
  return kSuccess;
}
int MemGetInfo(size_t* free, size_t* total) {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  if (const int code = Ready(); code != kSuccess) return code;
  *total = state.memory.limit();
  *free = state.memory.limit() - state.memory.live_bytes();
  return kSuccess;
}
int MemAlloc(unsigned long long* address, size_t bytes) {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  if (const int code = Ready(); code != kSuccess) return code;
  ++state.allocations;
  uint64_t at = 0;
  const int code = state.memory.Allocate(bytes, &at);
  *address = at;
  return code;
}
int MemFree(unsigned long long address) {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  if (const int code = Ready(); code != kSuccess) return code;
  return state.memory.Free(address);
}

int CheckStream(void* stream) {
  if (const int code = Ready(); code != kSuccess) return code;
  return TheState().streams.contains(static_cast<Stream*>(stream)) ? kSuccess : kInvalidHandle;
}

int CopyIn(unsigned long long to, const void* from, size_t bytes, void* stream) {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  if (const int code = CheckStream(stream); code != kSuccess) return code;
  state.copies_while_running += static_cast<Stream*>(stream)->busy ? 1 : 0;
  char* at = state.memory.Alias(to, bytes);
  if (at == nullptr) return kInvalidValue;
  memcpy(at, from, bytes);
  return kSuccess;
}
// The host's memory is written when somebody asks whether it is: too early a read finds it as it was.
int CopyOut(void* to, unsigned long long from, size_t bytes, void* stream) {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  if (const int code = CheckStream(stream); code != kSuccess) return code;
  auto* on = static_cast<Stream*>(stream);
  state.copies_while_running += on->busy ? 1 : 0;
  const char* at = state.memory.Alias(from, bytes);
  if (at == nullptr) return kInvalidValue;
  on->copies.push_back([to, at, bytes] { memcpy(to, at, bytes); });
  return kSuccess;
}
int Fill(unsigned long long to, unsigned char value, size_t bytes, void* stream) {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  if (const int code = CheckStream(stream); code != kSuccess) return code;
  char* at = state.memory.Alias(to, bytes);
  if (at == nullptr) return kInvalidValue;
  memset(at, value, bytes);
  return kSuccess;
}

int StreamCreate(void** stream, unsigned) {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  if (const int code = Ready(); code != kSuccess) return code;
  auto* made = new Stream();
  state.streams.insert(made);
  return *stream = made, kSuccess;
}
int StreamDestroy(void* stream) {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  if (const int code = CheckStream(stream); code != kSuccess) return code;
  state.streams.erase(static_cast<Stream*>(stream));
  delete static_cast<Stream*>(stream);
  return kSuccess;
}
int StreamQuery(void* stream) {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  if (const int code = CheckStream(stream); code != kSuccess) return code;
  auto* on = static_cast<Stream*>(stream);
  const bool hangs = state.settings.hang != 0 && state.launches >= state.settings.hang;
  if (on->busy && (hangs || !std::exchange(on->queried, true))) return kNotReady;
  on->busy = on->queried = false;
  for (const auto& copy : std::exchange(on->copies, {})) copy();
  return kSuccess;
}

int ModuleLoadData(void** module, const void* image) {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  if (const int code = Ready(); code != kSuccess) return code;
  Module* loaded = LoadModule(image);
  if (loaded == nullptr) return kInvalidImage;
  state.modules.insert(loaded);
  return *module = loaded, kSuccess;
}
int ModuleUnload(void* module) {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  if (const int code = Ready(); code != kSuccess) return code;
  if (state.modules.erase(static_cast<Module*>(module)) == 0) return kInvalidHandle;
  UnloadModule(static_cast<Module*>(module));
  return kSuccess;
}
int ModuleGetFunction(void** function, void* module, const char* name) {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  if (const int code = Ready(); code != kSuccess) return code;
  if (!state.modules.contains(static_cast<Module*>(module))) return kInvalidHandle;
  if (strcmp(name, "kiln_kernel") != 0) return kNotFound;
  return *function = module, kSuccess;
}
int FuncGetAttribute(int* value, int attribute, void*) {
  if (const int code = Ready(); code != kSuccess) return code;
  if (attribute != 0) return kInvalidValue;
  return *value = 1024, kSuccess;
}
int FuncSetAttribute(void* function, int attribute, int value) {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  if (const int code = Ready(); code != kSuccess) return code;
  if (attribute != 8 || value < 0 || value > 227 << 10) return kInvalidValue;
  static_cast<Module*>(function)->dynamic_shared_max = value;
  return kSuccess;
}
int LaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                 unsigned block_z, unsigned shared, void* stream, void** parameters, void** extra) {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  if (const int code = CheckStream(stream); code != kSuccess) return code;
  if (!state.modules.contains(static_cast<Module*>(function))) return kInvalidHandle;
  const auto& module = *static_cast<Module*>(function);
  if (grid_x == 0 || grid_x > 0x7fffffff || grid_y != 1 || grid_z != 1 || block_x == 0 || block_x > 1024 ||
      block_y != 1 || block_z != 1 || extra != nullptr || static_cast<int>(shared) > module.dynamic_shared_max)
    return kInvalidValue;
  const auto fail = state.settings.fail.find(++state.launches);
  if (fail != state.settings.fail.end() && !Stays(fail->second)) return fail->second;
  auto* on = static_cast<Stream*>(stream);
  on->busy = true;
  on->queried = false;
  int code = kSuccess;
  if (fail != state.settings.fail.end()) {
    code = fail->second;
  } else {
    state.memory.Open(true);
    code = RunGuarded(module, grid_x, block_x, shared, parameters);
    state.memory.Open(false);
    if (code != kSuccess && module.error != nullptr) fprintf(stderr, "kernel on the double: %s\n", module.error());
  }
  state.broken = code;  // the launch itself was taken: whoever asks next hears of it
  return kSuccess;
}

struct Entry {
  const char* name;
  void* function;
};
template <class Function>
Entry At(const char* name, Function* function) {
  return {name, reinterpret_cast<void*>(function)};
}

}  // namespace
}  // namespace cuda_double

using namespace cuda_double;

extern "C" {

int cuInit(unsigned) {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  state.settings = ReadSettings();
  if (state.settings.stub) return kStubLibrary;
  if (state.settings.init != kSuccess) return state.settings.init;
  if (state.settings.devices == 0) return kNoDevice;
  for (Module* module : std::exchange(state.modules, {})) UnloadModule(module);
  for (Stream* stream : std::exchange(state.streams, {})) delete stream;
  state.memory.Reset(state.settings.memory);
  state.initialised = true;
  state.broken = 0;
  state.launches = state.allocations = state.copies_while_running = 0;
  current = false;
  return kSuccess;
}

int cuDriverGetVersion(int* version) {
  const Settings settings = ReadSettings();
  if (settings.stub) return kStubLibrary;
  return *version = settings.driver, kSuccess;
}

int cuGetProcAddress_v2(const char* symbol, void** entry, int version, uint64_t, int*) {
  static const Entry entries[] = {At("cuInit", cuInit),
                                  At("cuDriverGetVersion", cuDriverGetVersion),
                                  At("cuGetErrorName", GetErrorName),
                                  At("cuGetErrorString", GetErrorString),
                                  At("cuDeviceGetCount", DeviceGetCount),
                                  At("cuDeviceGet", DeviceGet),
                                  At("cuDeviceGetName", DeviceGetName),
                                  At("cuDeviceGetAttribute", DeviceGetAttribute),
                                  At("cuDevicePrimaryCtxRetain", PrimaryCtxRetain),
                                  At("cuDevicePrimaryCtxRelease", PrimaryCtxRelease),
                                  At("cuCtxSetCurrent", CtxSetCurrent),
                                  At("cuMemGetInfo", MemGetInfo),
                                  At("cuMemAlloc", MemAlloc),
                                  At("cuMemFree", MemFree),
                                  At("cuMemcpyHtoDAsync", CopyIn),
                                  At("cuMemcpyDtoHAsync", CopyOut),
                                  At("cuMemsetD8Async", Fill),
                                  At("cuStreamCreate", StreamCreate),
                                  At("cuStreamDestroy", StreamDestroy),
                                  At("cuStreamQuery", StreamQuery),
                                  At("cuModuleLoadData", ModuleLoadData),
                                  At("cuModuleUnload", ModuleUnload),
                                  At("cuModuleGetFunction", ModuleGetFunction),
                                  At("cuFuncGetAttribute", FuncGetAttribute),
                                  At("cuFuncSetAttribute", FuncSetAttribute),
                                  At("cuLaunchKernel", LaunchKernel)};
  *entry = nullptr;
  if (version < 12000) return kInvalidValue;
  for (const Entry& known : entries)
    if (strcmp(known.name, symbol) == 0) return *entry = known.function, kSuccess;
  return kNotFound;
}

uint64_t kiln_cuda_double_count(const char* name) {
  State& state = TheState();
  std::lock_guard lock(state.mutex);
  const std::string_view what = name;
  if (what == "allocations") return state.allocations;
  if (what == "live_allocations") return state.memory.live();
  if (what == "live_bytes") return state.memory.live_bytes();
  if (what == "launches") return state.launches;
  if (what == "modules") return state.modules.size();
  if (what == "streams") return state.streams.size();
  if (what == "copies_while_running") return state.copies_while_running;
  return ~uint64_t{0};
}

}  // extern "C"

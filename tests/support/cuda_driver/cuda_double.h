// The double's own state, shared by its files. Not the driver's interface: that is found by name, as in a driver.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace cuda_double {

// CUresult, as far as the double answers them.
enum Code : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kStubLibrary = 34,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
};

// What cuInit read.
struct Settings {
  int major = 9, minor = 0;
  size_t memory = size_t{256} << 20;
  int driver = 13000, devices = 1, init = kSuccess;
  bool stub = false;
  std::map<uint64_t, int> fail;  // launch, counted from 1 -> code
  uint64_t hang = 0;             // 0: never
};
Settings ReadSettings();

// Device memory: a window of addresses without access, over a file that an alias reads and writes.
class Memory {
 public:
  void Reset(size_t bytes);
  int Allocate(size_t bytes, uint64_t* address);
  int Free(uint64_t address);
  // Whether [address, address + bytes) lies in one allocation; then where the host's side of it is.
  char* Alias(uint64_t address, size_t bytes);
  // Only while a kernel runs.
  void Open(bool access);
  size_t live() const { return live_.size(); }
  size_t live_bytes() const { return live_bytes_; }
  size_t limit() const { return limit_; }

 private:
  struct Block {
    size_t bytes, first_page, pages;
  };
  int file_ = -1;
  char *window_ = nullptr, *alias_ = nullptr;
  size_t limit_ = 0, next_page_ = 0, live_bytes_ = 0;
  std::map<uint64_t, Block> live_;
};

struct Module {
  int file = -1;
  void* library = nullptr;
  int (*launch)(unsigned, unsigned, unsigned, void**) = nullptr;
  const char* (*error)() = nullptr;
  int dynamic_shared_max = 48 << 10;
};
Module* LoadModule(const void* image);  // null: not one
void UnloadModule(Module* module);
// 0, or what the kernel answers; a fault in it is kIllegalAddress.
int RunGuarded(const Module& module, unsigned grid, unsigned block, unsigned shared, void** parameters);

struct Stream {
  bool busy = false;                          // a launch since the last query that found it done
  bool queried = false;                       // a busy stream is not done when it is asked for the first time
  std::vector<std::function<void()>> copies;  // to the host: done when somebody has asked
};

struct State {
  std::mutex mutex;
  Settings settings;
  Memory memory;
  std::set<Module*> modules;
  std::set<Stream*> streams;
  bool initialised = false;
  int broken = 0;  // the error that stays
  uint64_t launches = 0, allocations = 0, copies_while_running = 0;
};
State& TheState();

}  // namespace cuda_double

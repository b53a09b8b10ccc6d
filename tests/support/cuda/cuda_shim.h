// What the CUDA C++ of codegen/cuda needs to be compiled by the host's compiler and run on the processor: the built-in
// variables, barriers and shuffles of a block's threads, which are fibers, and shared memory whose every access is
// looked at. Included in front of the emitted text (g++ -include).
//
// A launch goes through the grid block by block. Between two meetings (barriers, shuffles) the threads run one after
// the other, in an order that the schedule gives. Reported as a fault, with the line of the text:
//   - shared memory: an access out of bounds or unaligned, a word that nobody wrote in this block, and a race: a word
//     that one thread writes and another reads or writes without a barrier in between
//   - a barrier or shuffle that some threads of the block or warp reach and others do not
//   - a memory fault of any access (buffers of tests end at guard pages)
// What a device does beyond that (the memory model within a warp, races in global memory) is not seen.
#pragma once

#define KILN_SHIM 1

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#define __global__
#define __launch_bounds__(...)
#define KILN_DEVICE [[maybe_unused]] static inline
#define KILN_METHOD inline

namespace kiln_shim {

constexpr unsigned kThreadsMax = 1024, kWarp = 32;
constexpr size_t kStackBytes = 64 << 10;

struct Index {
  unsigned x = 0;
};
struct Float4 {
  float x, y, z, w;
};

enum class Schedule : int { kForward = 0, kBackward = 1, kRandom = 2 };

// --- fibers ---

#if defined(__x86_64__)
using Context = void*;
// Saves the callee's registers on the stack that is left, and takes them from the one that is entered.
__attribute__((naked, noinline, unused)) static void Switch(Context* /*from*/, Context /*to*/) {
  asm volatile(
      "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
      "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
      "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n");
}
#endif

enum class State : uint8_t { kReady, kAtBarrier, kAtShuffle, kDone };

struct Fiber {
#if defined(__x86_64__)
  Context context = nullptr;
#else
  ucontext_t context;
#endif
  State state = State::kDone;
  int line = 0;        // of the meeting that it waits at
  uint64_t given = 0;  // to a shuffle, as bits
  unsigned from = 0;   // whose value it asks for
  uint64_t taken = 0;
};

struct Machine {
  Fiber fibers[kThreadsMax];
  unsigned threads = 0, current = 0;
  uint64_t epoch = 1, block_began = 1;  // barriers passed, of all launches
  void (*kernel)(void* call) = nullptr;
  void* call = nullptr;
  uint8_t* stacks = nullptr;
  bool failed = false;
  char error[400] = {};
  uint64_t random = 0;
  sigjmp_buf out;
#if defined(__x86_64__)
  Context scheduler = nullptr;
#else
  ucontext_t scheduler;
#endif
};

inline Machine machine;

}  // namespace kiln_shim

// The variables that the text names.
inline kiln_shim::Index threadIdx, blockIdx, blockDim, gridDim;
using float4 = kiln_shim::Float4;

namespace kiln_shim {

inline void Yield() {
  Machine& m = machine;
  Fiber& self = m.fibers[m.current];
#if defined(__x86_64__)
  Switch(&self.context, m.scheduler);
#else
  swapcontext(&self.context, &m.scheduler);
#endif
}

inline void Resume(unsigned thread) {
  Machine& m = machine;
  m.current = thread;
  threadIdx.x = thread;
#if defined(__x86_64__)
  Switch(&m.scheduler, m.fibers[thread].context);
#else
  swapcontext(&m.scheduler, &m.fibers[thread].context);
#endif
}

// Ends the launch. The first fault is the one that is told.
[[noreturn]] inline void Fault(int line, const char* what) {
  Machine& m = machine;
  if (!m.failed)
    snprintf(m.error, sizeof m.error, "line %d, block %u, thread %u: %s", line, blockIdx.x, m.current, what);
  m.failed = true;
  siglongjmp(m.out, 1);
}

inline void Enter() {
  Machine& m = machine;
  m.kernel(m.call);
  m.fibers[m.current].state = State::kDone;
  Yield();
  abort();
}

inline void Start(unsigned thread) {
  Machine& m = machine;
  Fiber& fiber = m.fibers[thread];
  uint8_t* stack = m.stacks + size_t{thread} * kStackBytes;
  fiber.state = State::kReady;
#if defined(__x86_64__)
  auto** top = reinterpret_cast<void**>(stack + kStackBytes);
  *--top = nullptr;  // a frame begins 8 bytes off 16
  *--top = reinterpret_cast<void*>(&Enter);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  fiber.context = top;
#else
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = stack;
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, &Enter, 0);
#endif
}

inline void Barrier(int line) {
  Fiber& self = machine.fibers[machine.current];
  self.state = State::kAtBarrier;
  self.line = line;
  Yield();
}

// What thread `lane` of the warp gives at the same place.
inline uint64_t Shuffle(uint64_t value, unsigned lane, int line) {
  Fiber& self = machine.fibers[machine.current];
  self.state = State::kAtShuffle;
  self.line = line;
  self.given = value;
  self.from = lane;
  Yield();
  return self.taken;
}

template <class T>
T ShuffleAs(T value, unsigned lane, int line) {
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  bits = Shuffle(bits, lane, line);
  memcpy(&value, &bits, sizeof value);
  return value;
}

// Lets the warps go on of which every thread waits at one shuffle. True when there was one.
inline bool MeetInWarps() {
  Machine& m = machine;
  bool met = false;
  for (unsigned first = 0; first < m.threads; first += kWarp) {
    Fiber* warp = m.fibers + first;
    bool all = true;
    for (unsigned i = 0; i < kWarp; ++i)
      all = all && warp[i].state == State::kAtShuffle && warp[i].line == warp[0].line;
    if (!all) continue;
    for (unsigned i = 0; i < kWarp; ++i) warp[i].taken = warp[warp[i].from % kWarp].given;
    for (unsigned i = 0; i < kWarp; ++i) warp[i].state = State::kReady;
    met = true;
  }
  return met;
}

// The same for the whole block and a barrier.
inline bool MeetInBlock() {
  Machine& m = machine;
  for (unsigned i = 0; i < m.threads; ++i)
    if (m.fibers[i].state != State::kAtBarrier || m.fibers[i].line != m.fibers[0].line) return false;
  for (unsigned i = 0; i < m.threads; ++i) m.fibers[i].state = State::kReady;
  ++m.epoch;
  return true;
}

inline uint64_t Random() {  // xorshift64*
  uint64_t& x = machine.random;
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  return x * 0x2545f4914f6cdd1dull;
}

// Which thread has turn `turn` of a round.
inline unsigned TurnOf(unsigned turn, Schedule schedule, uint64_t round, const unsigned* shuffled) {
  const unsigned threads = machine.threads;
  if (schedule == Schedule::kRandom) return shuffled[turn];
  const bool backward = schedule == Schedule::kBackward && round % 2 == 0;
  return backward ? threads - 1 - turn : turn;
}

inline void RunBlock(Schedule schedule) {
  Machine& m = machine;
  m.block_began = ++m.epoch;
  unsigned shuffled[kThreadsMax];
  for (unsigned i = 0; i < m.threads; ++i) {
    shuffled[i] = i;
    Start(i);
  }
  for (uint64_t round = 0;; ++round) {
    if (schedule == Schedule::kRandom)
      for (unsigned i = m.threads; i-- > 1;) {
        const unsigned other = static_cast<unsigned>(Random() % (i + 1)), kept = shuffled[i];
        shuffled[i] = shuffled[other];
        shuffled[other] = kept;
      }
    unsigned done = 0, ran = 0;
    for (unsigned turn = 0; turn < m.threads; ++turn) {
      const unsigned thread = TurnOf(turn, schedule, round, shuffled);
      if (m.fibers[thread].state == State::kReady) {
        ++ran;
        Resume(thread);
      }
    }
    for (unsigned i = 0; i < m.threads; ++i) done += m.fibers[i].state == State::kDone ? 1 : 0;
    if (done == m.threads) return;
    const bool warps = MeetInWarps();
    if (!MeetInBlock() && !warps && ran == 0) {
      for (unsigned i = 0; i < m.threads; ++i)
        if (m.fibers[i].state != State::kDone) m.current = i;
      Fault(m.fibers[m.current].line, "waits for threads that do not come to this barrier or shuffle");
    }
  }
}

inline void OnSignal(int signal, siginfo_t* info, void* /*context*/) {
  char what[80];
  snprintf(what, sizeof what, "signal %d at address %p", signal, info->si_addr);
  Fault(0, what);
}

// Faults of memory end the launch and not the process. The handler has a stack of its own.
class SignalGuard {
 public:
  SignalGuard() {
    stack_t stack = {};
    stack.ss_sp = memory_;
    stack.ss_size = sizeof memory_;
    sigaltstack(&stack, &old_stack_);
    struct sigaction action = {};
    action.sa_sigaction = OnSignal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int i = 0; i < 3; ++i) sigaction(kSignals[i], &action, &old_[i]);
  }
  ~SignalGuard() {
    for (int i = 0; i < 3; ++i) sigaction(kSignals[i], &old_[i], nullptr);
    sigaltstack(&old_stack_, nullptr);
  }

 private:
  static constexpr int kSignals[3] = {SIGSEGV, SIGBUS, SIGFPE};
  struct sigaction old_[3];
  stack_t old_stack_;
  inline static uint8_t memory_[64 << 10];
};

// One launch at a time: 0, or 700 for a fault, as the driver calls it; 1 for a launch that no device takes.
inline int Launch(void (*kernel)(void*), void* call, unsigned grid, unsigned block, Schedule schedule, uint64_t seed) {
  static volatile char busy = 0;
  while (__atomic_test_and_set(&busy, __ATOMIC_ACQUIRE)) {
  }
  Machine& m = machine;
  m.failed = false;
  m.error[0] = 0;
  int result = 0;
  if (block == 0 || block > kThreadsMax || block % kWarp != 0 || grid == 0) {
    snprintf(m.error, sizeof m.error, "a launch of %u blocks of %u threads", grid, block);
    result = 1;
  } else {
    if (m.stacks == nullptr)
      m.stacks = static_cast<uint8_t*>(mmap(nullptr, kThreadsMax * kStackBytes, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    m.kernel = kernel;
    m.call = call;
    m.threads = block;
    m.random = seed * 2 + 1;
    blockDim.x = block;
    gridDim.x = grid;
    const SignalGuard guard;
    if (sigsetjmp(m.out, 1) == 0) {
      for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x) RunBlock(schedule);
    } else {
      result = 700;
    }
  }
  __atomic_clear(&busy, __ATOMIC_RELEASE);
  return result;
}

// --- shared memory ---

template <class T, int kCount>
class Shared {
 public:
  T Get(long long index, int line) {
    Mark& mark = At(index, 1, line);
    Machine& m = machine;
    if (mark.written < m.block_began) Fault(line, "reads shared memory that no thread of the block wrote");
    if (mark.written == m.epoch && mark.writer != m.current) Fault(line, "reads what another thread wrote: no barrier");
    mark.readers = mark.read == m.epoch && mark.reader != m.current ? 2 : mark.read == m.epoch ? mark.readers : 1;
    mark.read = m.epoch;
    mark.reader = m.current;
    return data_[index];
  }
  Float4 GetFour(long long index, int line) {
    At(index, 4, line);
    if (index % 4 != 0) Fault(line, "reads four words of shared memory that are not aligned");
    return {Get(index, line), Get(index + 1, line), Get(index + 2, line), Get(index + 3, line)};
  }
  void Put(long long index, T value, int line) {
    Mark& mark = At(index, 1, line);
    Machine& m = machine;
    if (mark.written == m.epoch && mark.writer != m.current)
      Fault(line, "writes what another thread wrote: no barrier");
    if (mark.read == m.epoch && (mark.reader != m.current || mark.readers > 1))
      Fault(line, "writes what another thread read: no barrier");
    mark.written = m.epoch;
    mark.writer = m.current;
    data_[index] = value;
  }

 private:
  struct Mark {
    uint64_t written = 0, read = 0;  // epochs
    unsigned writer = 0, reader = 0, readers = 0;
  };
  Mark& At(long long index, long long count, int line) {
    if (index < 0 || index + count > kCount) Fault(line, "leaves its shared memory");
    return marks_[index];
  }
  T data_[kCount];
  Mark marks_[kCount];
};

template <class T>
T FromBits(auto bits) {
  static_assert(sizeof(T) == sizeof bits);
  T value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace kiln_shim

#define KILN_SHARED(type, name, count) static ::kiln_shim::Shared<type, count> name
#define KILN_GET(name, index) (name.Get(index, __LINE__))
#define KILN_GET4(name, index) (name.GetFour(index, __LINE__))
#define KILN_PUT(name, index, value) (name.Put(index, value, __LINE__))
#define __syncthreads() ::kiln_shim::Barrier(__LINE__)
#define __syncwarp() ((void)::kiln_shim::Shuffle(0, threadIdx.x, __LINE__))
#define __shfl_xor_sync(mask, value, distance) ::kiln_shim::ShuffleAs(value, threadIdx.x ^ (distance), __LINE__)
#define __shfl_sync(mask, value, lane) ::kiln_shim::ShuffleAs(value, lane, __LINE__)

static inline float __uint_as_float(unsigned bits) {
  return kiln_shim::FromBits<float>(bits);
}
static inline unsigned __float_as_uint(float value) {
  return kiln_shim::FromBits<unsigned>(value);
}
static inline double __longlong_as_double(long long bits) {
  return kiln_shim::FromBits<double>(bits);
}

// What the text says in the device's assembly.
static inline float kiln_from_f16(unsigned short bits) {
  const unsigned magnitude = bits & 0x7fffu, sign = (bits & 0x8000u) << 16;
  if (magnitude >= 0x7c00u) return __uint_as_float(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  const float scaled = __uint_as_float(magnitude << 13) * 0x1p112f;
  return __uint_as_float(sign | __float_as_uint(scaled));
}
static inline unsigned short kiln_to_f16(float number) {
  const unsigned bits = __float_as_uint(number), magnitude = bits & 0x7fffffffu;
  const unsigned sign = bits >> 16 & 0x8000u;
  if (magnitude > 0x7f800000u) return static_cast<unsigned short>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<unsigned short>(sign | 0x7c00u);  // 65520 rounds to infinity
  if (magnitude < 0x38800000u) {  // the sum's last bit is a denormal half's
    const float sum = __uint_as_float(magnitude) + 0.5f;
    return static_cast<unsigned short>(sign | (__float_as_uint(sum) - 0x3f000000u));
  }
  const unsigned rounded = magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u);
  return static_cast<unsigned short>(sign | rounded >> 13);
}
static inline int kiln_dot4(unsigned a, unsigned b, int sum) {
  unsigned total = static_cast<unsigned>(sum);
  for (int i = 0; i < 4; ++i)
    total += static_cast<unsigned>(static_cast<int>(a >> (8 * i) & 0xffu) * static_cast<signed char>(b >> (8 * i)));
  return static_cast<int>(total);
}

// --- entries ---

#define KILN_SHIM_EXPORT extern "C" __attribute__((visibility("default")))

KILN_SHIM_EXPORT const char* kiln_shim_error() {
  return kiln_shim::machine.error;
}

// `run`: calls `function`, a kernel with its Args in scope, with the driver's parameters.
#define KILN_SHIM_RUN(run, function)                                                                  \
  static void run(void* call) {                                                                       \
    void** parameters = static_cast<void**>(call);                                                    \
    function(*static_cast<const Args*>(parameters[0]), *static_cast<const long long*>(parameters[1]), \
             *static_cast<const long long*>(parameters[2]));                                          \
  }

// A kernel as kiln_shim_launch, one schedule after the other.
#define KILN_SHIM_ENTRY(function)                                                                         \
  KILN_SHIM_RUN(kiln_shim_run, function)                                                                  \
  KILN_SHIM_EXPORT int kiln_shim_launch(unsigned grid_x, unsigned block_x, unsigned dynamic_shared_bytes, \
                                        void** kernel_params) {                                           \
    static uint64_t launches = 0;                                                                         \
    ++launches;                                                                                           \
    if (dynamic_shared_bytes != 0) return 1; /* no kernel of ours has any */                              \
    return ::kiln_shim::Launch(kiln_shim_run, kernel_params, grid_x, block_x,                             \
                               static_cast<::kiln_shim::Schedule>(launches % 3), launches);               \
  }

/* Runs a kernel on data from a file and writes the results back into it: what an emulator of another processor is given
 * instead of a test program. Freestanding: no C library, a handful of system calls.
 *
 * The file is 64-bit numbers: bytes of the kernel, offset of its entry, count of buffers, of dims, of parts, and how
 * many bytes may be touched behind a buffer; then the
 * size of every buffer and where in it the kernel's pointer points, the dims, begin and end of every part; then the kernel and the buffers, each from the next
 * multiple of 64 on. Every buffer is run at the end of a page, with a guard page behind it. */
#include <stdint.h>

#include "common/artifact/kernel_abi.h"

enum { kPage = 4096, kAlignment = 64, kPointersMax = 256 };
enum { kReadOnly = 1, kReadWrite = 3, kReadExecute = 5, kShared = 1, kAnonymous = 0x22, kOpenReadWrite = 2 };

#if defined(__x86_64__)
enum { kOpenAt = 257, kMap = 9, kProtect = 10, kExit = 231 };
static long Call(long number, long a, long b, long c, long d, long e, long f) {
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}
__asm__(".globl _start\n_start:\n mov %rsp, %rdi\n and $-64, %rsp\n call Main\n");
#elif defined(__aarch64__)
enum { kOpenAt = 56, kMap = 222, kProtect = 226, kExit = 94 };
static long Call(long number, long a, long b, long c, long d, long e, long f) {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}
__asm__(".globl _start\n_start:\n mov x0, sp\n bl Main\n");
#else
#error "no runner for this processor"
#endif

static void Exit(long code) {
  Call(kExit, code, 0, 0, 0, 0, 0);
  __builtin_unreachable();
}

static unsigned char* Map(long bytes, long protection, long flags, long file) {
  const long address = Call(kMap, 0, bytes, protection, flags, file, 0);
  if (address < 0 && address > -kPage) Exit(3);
  return (unsigned char*)address;
}

static void Copy(unsigned char* to, const unsigned char* from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; ++i) to[i] = from[i];
}

static int64_t RoundUp(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

/* `stack`: as the kernel leaves it at start: argc, argv[0], argv[1]. argv: the file and its size in decimal. */
void Main(const long* stack) {
  if (stack[0] != 3) Exit(2);
  long size = 0;
  for (const char* digit = (const char*)stack[3]; *digit; ++digit) size = size * 10 + (*digit - '0');
  const long file = Call(kOpenAt, -100, stack[2], kOpenReadWrite, 0, 0, 0);
  if (file < 0) Exit(2);
  unsigned char* base = Map(size, kReadWrite, kShared, file);
  const int64_t* header = (const int64_t*)base;
  const int64_t code_bytes = header[0], entry = header[1], buffers = header[2], dims = header[3], parts = header[4], slack = header[5];
  const int64_t *sizes = header + 6, *origins = sizes + buffers, *dim = origins + buffers, *part = dim + dims;
  if (buffers > kPointersMax) Exit(2);

  int64_t at = RoundUp((unsigned char*)(part + 2 * parts) - base, kAlignment);
  unsigned char* code = Map(RoundUp(code_bytes, kPage), kReadWrite, kAnonymous, -1);
  Copy(code, base + at, code_bytes);
  Call(kProtect, (long)code, RoundUp(code_bytes, kPage), kReadExecute, 0, 0, 0);
  at += RoundUp(code_bytes, kAlignment);

  void* pointers[kPointersMax];
  const int64_t first = at;
  for (int64_t i = 0; i < buffers; ++i) {
    const int64_t pages = RoundUp(sizes[i] + slack, kPage);
    unsigned char* memory = Map(pages + kPage, kReadWrite, kAnonymous, -1);
    Call(kProtect, (long)(memory + pages), kPage, 0, 0, 0, 0);
    unsigned char* begin = memory + pages - slack - sizes[i];
    Copy(begin, base + at, sizes[i]);
    pointers[i] = begin + origins[i];
    at += RoundUp(sizes[i], kAlignment);
  }
  const KilnKernelArgs args = {pointers, dim, 0};
  for (int64_t p = 0; p < parts; ++p) ((KilnKernel)(code + entry))(&args, part[2 * p], part[2 * p + 1]);
  at = first;
  for (int64_t i = 0; i < buffers; ++i) {
    Copy(base + at, (unsigned char*)pointers[i] - origins[i], sizes[i]);
    at += RoundUp(sizes[i], kAlignment);
  }
  Exit(0);
}

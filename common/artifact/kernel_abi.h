/* The boundary between a worker and generated code. Standalone; treated as a schema: a change raises KILN_KERNEL_ABI.
 *
 * A kernel is position-independent code without external symbols. It runs the part [begin, end) of its parallel
 * dimension, and may be called for disjoint parts from several threads at once. It reads and writes only through
 * `pointers`; how many there are, their dtypes, and the meaning of `dims` are fixed by its KernelSpec. Pointers already
 * include every offset. All strides in `dims` are in elements. `scratch` is private to the calling thread, 64-byte
 * aligned, at least as large as the plan step says (it may be null when that is 0). Calling convention: the platform's
 * C convention.
 *
 * A kernel cannot refuse a call. What it is told by numbers in memory (the indices of a lookup, the lengths of a
 * recurrence, the divisors of integers) is checked by a step of the plan before it, the reference kernel of
 * CheckIndices, CheckDivisors or another op: when a number is outside of its range, the run ends with that op's error
 * before the kernel, nothing is let out, and the call is answered by the interpreter, which gives the error that names
 * the node. Such a call says nothing about the plan: it counts neither for nor against it. So that no kernel depends on
 * that order for where it reads, a position that comes from memory is brought into [0, extent) first, whatever it is
 * (to 0 where the extent is 0, of which no call with a position passes the check); what a kernel computes is defined,
 * and validated, for any numbers.
 *
 * Kernels of a device (CUDA). The image has one function,
 *
 *   extern "C" __global__ void kiln_kernel(const Args args, long long begin, long long end);
 *   struct Args { void* pointers[P]; long long dims[D]; };   passed by value; P and D at least 1
 *
 * with P and D as the header of the blob has them. It does the part [begin, end) of the same parallel dimension, by a
 * one-dimensional grid of ceil((end - begin) / items per block) blocks of as many threads as the header says; a range
 * that needs more than 2^31 - 1 blocks is launched in parts. Pointers are addresses of the device, and what was said
 * about them, about numbers in memory and about refusing calls holds alike. There is no scratch: a kernel uses shared
 * memory, its own or as much dynamic one as the header says. Kernels of a plan are launched in order on one stream. */
#ifndef KILN_COMMON_ARTIFACT_KERNEL_ABI_H_
#define KILN_COMMON_ARTIFACT_KERNEL_ABI_H_

#include <stdint.h>

#define KILN_KERNEL_ABI 1u

#ifdef __cplusplus
extern "C" {
#endif

typedef struct KilnKernelArgs {
  void* const* pointers;
  const int64_t* dims;
  void* scratch;
} KilnKernelArgs;

typedef void (*KilnKernel)(const KilnKernelArgs* args, int64_t begin, int64_t end);

#ifdef __cplusplus
}
#endif

#endif

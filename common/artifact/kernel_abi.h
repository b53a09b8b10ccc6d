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
 * and validated, for any numbers. */
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

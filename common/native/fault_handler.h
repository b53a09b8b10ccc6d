// What becomes of a process that serves when code faults in it.
//
// A fault in generated code comes after stores that nobody has seen: whatever else lies in this process may be damaged.
// So nothing is answered any more, not even by the interpreter: the plan is written down for the next start, and the
// process ends at once; its clients ask another worker, its supervisor starts it again. Any other fault is said on
// standard error and ends the process as it would have.
#pragma once

#include <cstddef>
#include <string>

#include "common/base/hash.h"
#include "common/base/result.h"

namespace kiln {

// Exit status after a fault in generated code.
inline constexpr int kKernelFaultExit = 5;

// Files of this name in the handler's directory name plans: PLAN.fault, with the hash of the plan's contents in hex.
inline constexpr const char* kFaultSuffix = ".fault";

// Whose code lies in a range. The table has room for kCodeRangesMax; code beyond them runs as well, but its faults are
// reported as any other. Any thread; a range is left before its memory is.
void EnterCodeRange(const void* begin, size_t bytes, const Digest& plan, const Digest& contents);
void LeaveCodeRange(const void* begin);

// Handles SIGSEGV, SIGBUS, SIGILL and SIGFPE from now on. `directory` exists, or is empty: then nothing is written
// down. Once per process, before other threads.
Status InstallFaultHandler(const std::string& directory);
// Does not return once a fault is being handled: to be called before an answer leaves the process.
void StopIfFaulted();

}  // namespace kiln

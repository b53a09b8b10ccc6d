// What builds with the address sanitizer know of memory that is cut up by us: without it these are empty.
#pragma once

#include <cstddef>

#if defined(__has_feature)  // of clang, which defines no macro for a sanitizer
#define KILN_HAS_FEATURE(name) __has_feature(name)
#else
#define KILN_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || KILN_HAS_FEATURE(address_sanitizer)
#define KILN_ADDRESS_SANITIZER 1
#include <sanitizer/asan_interface.h>

#include <cstring>
#else
#define KILN_ADDRESS_SANITIZER 0
#endif

namespace kiln {

// An instrumented access to the bytes ends the process until they are allowed again.
inline void ForbidAccess([[maybe_unused]] const void* data, [[maybe_unused]] size_t bytes) {
#if KILN_ADDRESS_SANITIZER
  __asan_poison_memory_region(data, bytes);
#endif
}
// Allows it again; also before memory goes back to the system.
inline void AllowAccess([[maybe_unused]] const void* data, [[maybe_unused]] size_t bytes) {
#if KILN_ADDRESS_SANITIZER
  __asan_unpoison_memory_region(data, bytes);
#endif
}
// Fresh memory has other contents each time, so that who reads it before writing it answers differently each time.
inline void Scribble([[maybe_unused]] void* data, [[maybe_unused]] size_t bytes) {
#if KILN_ADDRESS_SANITIZER
  thread_local unsigned char pattern = 0;
  std::memset(data, ++pattern, bytes);
#endif
}

}  // namespace kiln

// The one place where a thread's loop meets exceptions: what work throws becomes an Error, and the thread goes on.
#pragma once

#include <exception>
#include <new>
#include <type_traits>

#include "common/base/result.h"

namespace kiln {

// What `work` returns (a Result); ResourceExhausted when memory ran out in it, Internal for any other exception.
template <class Work>
std::invoke_result_t<Work> Caught(Work&& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return Fail(ErrorCode::kResourceExhausted, "out of memory");
  } catch (const std::exception& thrown) {
    return Fail(ErrorCode::kInternal, std::string("unexpected exception: ") + thrown.what());
  }
}

}  // namespace kiln

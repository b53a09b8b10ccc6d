// The FlatBuffers form of every request and reply. Decode is the trust boundary: bytes are verified and bounded, kinds
// checked, then copied.
#pragma once

#include "common/base/result.h"
#include "common/cache_api/types.h"
#include "common/messaging/message.h"

namespace kiln::cache {

inline constexpr size_t kKeysMax = 4096;  // digests in one message
inline constexpr size_t kTargetsMax = 64;
inline constexpr size_t kTextBytesMax = 1024;

// Encode(request), Encode(reply), Decode(message, request), Decode(message, reply) for each method of the table.
#define KILN_CACHE_METHOD(value, name, roles, admission, doc) \
  Message Encode(const name##Request& value_in);              \
  Message Encode(const name##Reply& value_in);                \
  Status Decode(Message message, name##Request& out);         \
  Status Decode(Message message, name##Reply& out);
#include "common/cache_api/methods.def"
#undef KILN_CACHE_METHOD

// Request type → method number and reply type.
template <class Request>
struct MethodOf;
#define KILN_CACHE_METHOD(value, name, roles, admission, doc) \
  template <>                                                 \
  struct MethodOf<name##Request> {                            \
    static constexpr Method kMethod = Method::k##name;        \
    using Reply = name##Reply;                                \
  };
#include "common/cache_api/methods.def"
#undef KILN_CACHE_METHOD

}  // namespace kiln::cache

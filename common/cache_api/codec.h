// The FlatBuffers form of every request and reply. Decode is the trust boundary: bytes are verified and bounded, kinds
// checked, then copied.
#pragma once

#include <cstdint>
#include <span>

#include "common/base/result.h"
#include "common/cache_api/types.h"
#include "common/messaging/message.h"

namespace kiln::cache {

// Encode(request), Encode(reply), Decode(message, request), Decode(message, reply) for each method of the table.
#define KILN_CACHE_METHOD(value, name, roles, admission, doc) \
  Message Encode(const name##Request& value_in);              \
  Message Encode(const name##Reply& value_in);                \
  Status Decode(Message message, name##Request& out);         \
  Status Decode(Message message, name##Reply& out);
#include "common/cache_api/methods.def"
#undef KILN_CACHE_METHOD

// The hint of the change log: its head. Published by the store after each change; a receiver takes no other bytes.
Bytes EncodeHint(uint64_t head);
Result<uint64_t> DecodeHint(std::span<const uint8_t> hint);

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

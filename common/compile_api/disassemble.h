// The compile service's reading of a kernel, for people.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/messaging/message.h"

namespace kiln {

class RpcClient;

Message EncodeDisassembleRequest(std::span<const uint8_t> code);
Result<std::vector<uint8_t>> DecodeDisassembleRequest(const Message& message);
Message EncodeDisassembleReply(const std::string& listing);
Result<std::string> DecodeDisassembleReply(const Message& message);

// A kernel blob as text; blocking; not on the client's loop thread.
Result<std::string> DisassembleSync(RpcClient& client, std::span<const uint8_t> code, int64_t deadline_ms);

}  // namespace kiln

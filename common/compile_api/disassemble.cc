#include "common/compile_api/disassemble.h"

#include "common/base/flatbuffer.h"
#include "common/base/limits.h"
#include "common/compile_api/compile_api.h"
#include "common/messaging/rpc_client.h"
#include "schemas/compile_generated.h"

namespace kiln {

Message EncodeDisassembleRequest(std::span<const uint8_t> code) {
  flatbuffers::FlatBufferBuilder builder(code.size() + 64);
  builder.Finish(fbs::CreateDisassembleRequest(builder, builder.CreateVector(code.data(), code.size())));
  return {FinishedBytes(builder), {}};
}

Result<std::vector<uint8_t>> DecodeDisassembleRequest(const Message& message) {
  ASSIGN_OR_RETURN(const fbs::DisassembleRequest* root,
                   VerifiedRoot<fbs::DisassembleRequest>(message.payload, "disassemble request"));
  const auto code = BytesOf(root->code());
  if (code.size() > limits::kKernelBlobBytesMax)
    return Fail(ErrorCode::kLimitExceeded, "the kernel has " + std::to_string(code.size()) + " bytes; the limit is " +
                                               std::to_string(limits::kKernelBlobBytesMax));
  return std::vector<uint8_t>(code.begin(), code.end());
}

Message EncodeDisassembleReply(const std::string& listing) {
  flatbuffers::FlatBufferBuilder builder(listing.size() + 64);
  builder.Finish(fbs::CreateDisassembleReply(builder, builder.CreateString(listing)));
  return {FinishedBytes(builder), {}};
}

Result<std::string> DecodeDisassembleReply(const Message& message) {
  ASSIGN_OR_RETURN(const fbs::DisassembleReply* root,
                   VerifiedRoot<fbs::DisassembleReply>(message.payload, "disassemble reply"));
  return root->listing() == nullptr ? std::string() : root->listing()->str();
}

Result<std::string> DisassembleSync(RpcClient& client, std::span<const uint8_t> code, int64_t deadline_ms) {
  ASSIGN_OR_RETURN(RpcReply reply, client.CallSync(static_cast<uint16_t>(CompileMethod::kDisassemble),
                                                   EncodeDisassembleRequest(code), deadline_ms));
  return DecodeDisassembleReply(reply.message);
}

}  // namespace kiln

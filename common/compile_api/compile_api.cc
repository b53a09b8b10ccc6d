#include "common/compile_api/compile_api.h"

#include "common/base/flatbuffer.h"
#include "common/base/limits.h"
#include "common/messaging/rpc_client.h"
#include "common/messaging/rpc_server.h"
#include "schemas/compile_generated.h"

namespace kiln {
namespace {

constexpr int64_t kCancelDeadlineMs = 1'000;

}  // namespace

RoleSet MethodRoles(CompileMethod method) {
  switch (method) {
#define KILN_COMPILE_METHOD(value, name, roles, admission, doc) \
  case CompileMethod::k##name:                                  \
    return roles;
#include "common/compile_api/compile_methods.def"
#undef KILN_COMPILE_METHOD
  }
  return 0;
}

Admission MethodAdmission(CompileMethod method) {
  switch (method) {
#define KILN_COMPILE_METHOD(value, name, roles, admission, doc) \
  case CompileMethod::k##name:                                  \
    return Admission::admission;
#include "common/compile_api/compile_methods.def"
#undef KILN_COMPILE_METHOD
  }
  return Admission::kQueued;
}

std::string_view MethodText(CompileMethod method) {
  switch (method) {
#define KILN_COMPILE_METHOD(value, name, roles, admission, doc) \
  case CompileMethod::k##name:                                  \
    return #name " (" doc ")";
#include "common/compile_api/compile_methods.def"
#undef KILN_COMPILE_METHOD
  }
  return "";
}

Digest CompileRequest::Key() const {
  FieldHasher hasher("kiln.compile-request.v1");
  hasher.Bytes(segment)
      .Text(target)
      .U8(static_cast<uint8_t>(numeric_mode))
      .U8(static_cast<uint8_t>(tier))
      .Int64s(hints);
  hasher.U64(symbols.size());
  for (const SymbolGuard& symbol : symbols) hasher.I64(symbol.min).I64(symbol.max).I64(symbol.divisor);
  // As peers of the version before have it, where they can have it.
  if (weights != WeightForm::kPacked) hasher.U8(static_cast<uint8_t>(weights));
  return hasher.Finish();
}

Message EncodeCompileRequest(const CompileRequest& request) {
  flatbuffers::FlatBufferBuilder builder(request.segment.size() + 1024);
  std::vector<fbs::SymbolBinding> symbols;
  for (const SymbolGuard& symbol : request.symbols) symbols.emplace_back(symbol.min, symbol.max, symbol.divisor);
  builder.Finish(
      fbs::CreateCompileRequest(builder, builder.CreateVector(request.segment), builder.CreateString(request.target),
                                static_cast<uint8_t>(request.numeric_mode), static_cast<uint8_t>(request.tier),
                                request.priority, builder.CreateVectorOfStructs(symbols),
                                builder.CreateVector(request.hints), static_cast<uint8_t>(request.weights)));
  return {FinishedBytes(builder), {}};
}

Result<CompileRequest> DecodeCompileRequest(const Message& message) {
  ASSIGN_OR_RETURN(const fbs::CompileRequest* root,
                   VerifiedRoot<fbs::CompileRequest>(message.payload, "compile request"));
  CompileRequest request;
  const auto segment = BytesOf(root->segment());
  request.segment.assign(segment.begin(), segment.end());
  if (root->target() != nullptr) request.target = root->target()->str();
  RETURN_IF_ERROR(CheckCount(request.target.size(), limits::kTargetBytesMax, "compile request target"));
  const std::optional<NumericMode> mode = NumericModeFromNumber(root->numeric_mode());
  if (!mode) return Fail(ErrorCode::kMalformed, "unknown numeric mode " + std::to_string(root->numeric_mode()));
  request.numeric_mode = *mode;
  const std::optional<PlanTier> tier = PlanTierFromNumber(root->tier());
  if (!tier) return Fail(ErrorCode::kMalformed, "unknown plan tier " + std::to_string(root->tier()));
  request.tier = *tier;
  request.priority = root->priority();
  const std::optional<WeightForm> weights = WeightFormFromNumber(root->weights());
  if (!weights) return Fail(ErrorCode::kMalformed, "unknown form of weights " + std::to_string(root->weights()));
  request.weights = *weights;
  if (root->symbols() != nullptr) {
    RETURN_IF_ERROR(CheckCount(root->symbols()->size(), limits::kGuardSymbolsMax, "compile request symbols"));
    for (const fbs::SymbolBinding* symbol : *root->symbols()) {
      if (symbol->min() < 0 || symbol->max() < symbol->min() || symbol->divisor() < 1)
        return Fail(ErrorCode::kInvalidArgument, "compile request: impossible range " + std::to_string(symbol->min()) +
                                                     ".." + std::to_string(symbol->max()) + " for a symbol");
      request.symbols.push_back({symbol->min(), symbol->max(), symbol->divisor()});
    }
  }
  if (root->hints() != nullptr) {
    RETURN_IF_ERROR(CheckCount(root->hints()->size(), limits::kGuardSymbolsMax, "compile request hints"));
    request.hints.assign(root->hints()->begin(), root->hints()->end());
  }
  return request;
}

Message EncodeCompileReply(const CompileReply& reply) {
  flatbuffers::FlatBufferBuilder builder(256);
  builder.Finish(fbs::CreateCompileReply(builder, builder.CreateVector(reply.plan_key.bytes.data(), kDigestBytes),
                                         reply.already_there, reply.kernels, reply.kernels_compiled,
                                         reply.generated_nodes, reply.reference_nodes, reply.compile_us));
  return {FinishedBytes(builder), {}};
}

Result<CompileReply> DecodeCompileReply(const Message& message) {
  ASSIGN_OR_RETURN(const fbs::CompileReply* root, VerifiedRoot<fbs::CompileReply>(message.payload, "compile reply"));
  CompileReply reply;
  ASSIGN_OR_RETURN(reply.plan_key, DigestFromBytes(BytesOf(root->plan_key())));
  reply.already_there = root->already_there();
  reply.kernels = root->kernels();
  reply.kernels_compiled = root->kernels_compiled();
  reply.generated_nodes = root->generated_nodes();
  reply.reference_nodes = root->reference_nodes();
  reply.compile_us = root->compile_us();
  return reply;
}

Message EncodeCompileStats(const CompileStats& s) {
  flatbuffers::FlatBufferBuilder builder(256);
  builder.Finish(fbs::CreateCompileStatsReply(builder, s.requests, s.joined, s.plans, s.kernels, s.kernels_reused,
                                              s.failures, s.child_crashes, s.queued, s.running, s.cancelled,
                                              s.kernels_refused, s.kernels_timed, s.forms_taken, s.reproductions,
                                              s.reproduced, s.throttled));
  return {FinishedBytes(builder), {}};
}

Result<CompileStats> DecodeCompileStats(const Message& message) {
  ASSIGN_OR_RETURN(const fbs::CompileStatsReply* root,
                   VerifiedRoot<fbs::CompileStatsReply>(message.payload, "compile stats"));
  return CompileStats{root->requests(),       root->joined(),        root->plans(),           root->kernels(),
                      root->kernels_reused(), root->failures(),      root->child_crashes(),   root->queued(),
                      root->running(),        root->cancelled(),     root->kernels_refused(), root->kernels_timed(),
                      root->forms_taken(),    root->reproductions(), root->reproduced(),      root->throttled()};
}

Message EncodeCancelRequest(const Digest& key) {
  flatbuffers::FlatBufferBuilder builder(64);
  builder.Finish(fbs::CreateCancelRequest(builder, builder.CreateVector(key.bytes.data(), kDigestBytes)));
  return {FinishedBytes(builder), {}};
}

Result<Digest> DecodeCancelRequest(const Message& message) {
  ASSIGN_OR_RETURN(const fbs::CancelRequest* root, VerifiedRoot<fbs::CancelRequest>(message.payload, "cancel request"));
  return DigestFromBytes(BytesOf(root->key()));
}

void CancelCompile(RpcClient& client, const Digest& key) {
  client.Call(static_cast<uint16_t>(CompileMethod::kCancel), EncodeCancelRequest(key), kCancelDeadlineMs,
              [](Result<RpcReply>) {});
}

void RequestCompile(RpcClient& client, const CompileRequest& request, int64_t deadline_ms,
                    std::function<void(Result<CompileReply>)> done) {
  client.Call(static_cast<uint16_t>(CompileMethod::kCompile), EncodeCompileRequest(request), deadline_ms,
              [done = std::move(done)](Result<RpcReply> reply) {
                if (!reply.has_value()) return done(std::unexpected(reply.error()));
                done(DecodeCompileReply(reply->message));
              });
}

Result<CompileReply> RequestCompileSync(RpcClient& client, const CompileRequest& request, int64_t deadline_ms) {
  ASSIGN_OR_RETURN(RpcReply reply, client.CallSync(static_cast<uint16_t>(CompileMethod::kCompile),
                                                   EncodeCompileRequest(request), deadline_ms));
  return DecodeCompileReply(reply.message);
}

Result<CompileStats> CompileStatsSync(RpcClient& client, int64_t deadline_ms) {
  ASSIGN_OR_RETURN(RpcReply reply, client.CallSync(static_cast<uint16_t>(CompileMethod::kStats), {}, deadline_ms));
  return DecodeCompileStats(reply.message);
}

}  // namespace kiln

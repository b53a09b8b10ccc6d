// What decodes as a message encodes, and that decodes as the same message.
#include "common/base/check.h"
#include "common/cache_api/codec.h"
#include "common/compile_api/compile_api.h"
#include "common/compile_api/reproduce.h"
#include "common/messaging/envelope.h"
#include "common/worker_api/explain.h"
#include "common/worker_api/worker_api.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/message_bytes.h"

namespace kiln::fuzz {
namespace {

using testing::Flat;

template <class T>
void CheckCache(Message message) {
  T value, again;
  if (!cache::Decode(std::move(message), value)) return;
  const Message encoded = cache::Encode(value);
  KILN_CHECK(cache::Decode(encoded, again).has_value());
  KILN_CHECK(Flat(cache::Encode(again)) == Flat(encoded));
}

template <class T>
void CheckWorker(Message message) {
  T value, again;
  if (!Decode(message, value)) return;
  const Message encoded = Encode(value);
  KILN_CHECK(Decode(encoded, again).has_value());
  KILN_CHECK(Flat(Encode(again)) == Flat(encoded));
}

template <class T, Message (*encode)(const T&), Result<T> (*decode)(const Message&)>
void CheckCompile(Message message) {
  const auto value = decode(message);
  if (!value) return;
  const Message encoded = encode(*value);
  const auto again = decode(encoded);
  KILN_CHECK(again.has_value());
  KILN_CHECK(Flat(encode(*again)) == Flat(encoded));
}

void CheckEnvelope(Message message) {
  const auto value = DecodeEnvelope(message.payload);
  if (!value) return;
  const Bytes encoded = EncodeEnvelope(*value);
  const auto again = DecodeEnvelope(encoded);
  KILN_CHECK(again.has_value());
  KILN_CHECK(EncodeEnvelope(*again) == encoded);
}

struct MessageRow {
  std::string_view name;
  void (*check)(Message);
};

constexpr MessageRow kRows[] = {
    {"envelope", CheckEnvelope},
#define KILN_CACHE_METHOD(value, name, roles, admission, doc)   \
  {"cache." #name "Request", CheckCache<cache::name##Request>}, \
      {"cache." #name "Reply", CheckCache<cache::name##Reply>},
#include "common/cache_api/methods.def"
#undef KILN_CACHE_METHOD
    {"CompileRequest", CheckCompile<CompileRequest, EncodeCompileRequest, DecodeCompileRequest>},
    {"CompileReply", CheckCompile<CompileReply, EncodeCompileReply, DecodeCompileReply>},
    {"CompileStats", CheckCompile<CompileStats, EncodeCompileStats, DecodeCompileStats>},
    {"LoadRequest", CheckWorker<LoadRequest>},
    {"LoadReply", CheckWorker<LoadReply>},
    {"UnloadRequest", CheckWorker<UnloadRequest>},
    {"ListReply", CheckWorker<ListReply>},
    {"RunRequest", CheckWorker<RunRequest>},
    {"RunReply", CheckWorker<RunReply>},
    {"WorkerStatsRequest", CheckWorker<WorkerStatsRequest>},
    {"WorkerStatsReply", CheckWorker<WorkerStatsReply>},
    {"ExplainRequest", CheckWorker<ExplainRequest>},
    {"ExplainReply", CheckWorker<ExplainReply>},
    {"OpenStreamRequest", CheckWorker<OpenStreamRequest>},
    {"OpenStreamReply", CheckWorker<OpenStreamReply>},
    {"CloseStreamRequest", CheckWorker<CloseStreamRequest>},
    {"ReproduceRequest", CheckCompile<ReproduceRequest, EncodeReproduceRequest, DecodeReproduceRequest>},
    {"ReproduceReply", CheckCompile<ReproduceReply, EncodeReproduceReply, DecodeReproduceReply>},
};

}  // namespace

void Messages(std::span<const uint8_t> bytes) {
  if (bytes.empty()) return;
  kRows[bytes[0] % std::size(kRows)].check(testing::Unflat(bytes.subspan(1)));
}

int MessageRowNumber(std::string_view name) {
  for (size_t i = 0; i < std::size(kRows); ++i)
    if (kRows[i].name == name) return static_cast<int>(i);
  return -1;
}

}  // namespace kiln::fuzz

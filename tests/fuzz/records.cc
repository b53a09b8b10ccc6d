// What decodes as a record encodes, and that decodes as the same record.
#include <cstring>

#include "cache-store/records/entry.h"
#include "common/artifact/kernel_blob.h"
#include "common/artifact/plan.h"
#include "common/artifact/record.h"
#include "common/base/check.h"
#include "common/bytecode/attribute_bytes.h"
#include "common/bytecode/program_text.h"
#include "common/security/allow_list.h"
#include "common/security/signing.h"
#include "common/security/zap.h"
#include "common/segment/segment.h"
#include "common/signature/signature.h"
#include "compile-service/ir/kernel_spec.h"
#include "compile-service/jobs/job_codec.h"
#include "tests/fuzz/fuzz_target.h"

namespace kiln::fuzz {
namespace {

using Input = std::span<const uint8_t>;

void CheckGuardBytes(Input bytes) {
  SymbolTable symbols, again_symbols;
  const auto guard = DecodeGuard(bytes, &symbols);
  if (!guard) return;
  const Bytes encoded = EncodeGuard(*guard, symbols);
  const auto again = DecodeGuard(encoded, &again_symbols);
  KILN_CHECK(again.has_value());
  KILN_CHECK(EncodeGuard(*again, again_symbols) == encoded);
}

const Segment& SampleSegment() {
  static const Segment segment = [] {
    const Program program = ParseProgram(R"(program "sample" {
      symbol n in [1, 4096] divisor 2
      constant w : f32[4, 8] = splat 0.5
      constant axes : i64[1] = [1]
      func main(%x: f32[n, 4]) -> (%s) {
        %c : f32[4, 8] = Constant() {value = @w}
        %a : i64[1] = Constant() {value = @axes}
        %m : f32[n, 8] = MatMul(%x, %c) "a matmul"
        %s : f32[n, 1] = ReduceSum(%m, %a) {keepdims = 1}
      }
    })")
                                .value();
    return CanonicalSegment(program, FindSegments(program).at(0)).value();
  }();
  return segment;
}

void CheckPlanBytes(Input bytes) {
  const auto plan = DecodePlan(bytes);
  if (!plan) return;
  const Bytes encoded = EncodePlan(*plan);
  const auto again = DecodePlan(encoded);
  KILN_CHECK(again.has_value());
  KILN_CHECK(EncodePlan(*again) == encoded && ComputePlanKey(*again) == ComputePlanKey(*plan));
  Plan claimed = *plan;
  claimed.segment = SampleSegment().id;
  static_cast<void>(VerifyPlan(claimed, SampleSegment()));
}

void CheckSignedRecord(Input bytes) {
  const auto record = DecodeUnverified(bytes);
  if (!record) return;
  static const SigningKey key = SigningKey::FromSeed(Bytes(32, 7)).value();
  const Bytes encoded = EncodeAndSign(record->record, key);
  const auto again = DecodeAndVerify(encoded, {key.public_key()});
  KILN_CHECK(again.has_value() && again->record == record->record);
}

// A record around these bytes as its body, with the checksum that fuzzing would not find.
void CheckRecordBody(Input bytes) {
  Bytes framed = {'K', 'P', 'L', 'R', 1, 0, 0, 0};
  for (int i = 0; i < 8; ++i) framed.push_back(static_cast<uint8_t>(uint64_t{bytes.size()} >> (8 * i)));
  framed.insert(framed.end(), bytes.begin(), bytes.end());
  framed.resize(framed.size() + 32 + 64);
  const Digest checksum = HashBytes(framed);
  framed.insert(framed.end(), checksum.bytes.begin(), checksum.bytes.end());
  CheckSignedRecord(framed);
}

void CheckKernelFrame(Input bytes) {
  if (bytes.size() < kDigestBytes) return;
  Digest id;
  std::memcpy(id.bytes.data(), bytes.data() + bytes.size() - kDigestBytes, kDigestBytes);
  const auto payload = UnframeKernelBlob(bytes, id);
  if (payload) KILN_CHECK(FrameKernelBlob(*payload) == Bytes(bytes.begin(), bytes.end()));
}

void CheckKernelBlob(Input bytes) {
  const auto blob = ParseKernelBlob(bytes);
  if (blob) KILN_CHECK(blob->entry_offset >= kKernelHeaderBytes && blob->entry_offset < blob->bytes.size());
}

void CheckKernelSpec(Input bytes) {
  const auto spec = ir::DecodeSpec(bytes);
  if (!spec) return;
  const Bytes encoded = ir::EncodeSpec(*spec);  // bytes are compared, since a number may be NaN
  const auto again = ir::DecodeSpec(encoded);
  KILN_CHECK(again.has_value() && ir::EncodeSpec(*again) == encoded);
}

void CheckSegmentBytes(Input bytes) {
  const auto segment = DecodeSegment(bytes);
  if (!segment) return;
  const auto encoded = EncodeSegment(*segment);
  KILN_CHECK(encoded.has_value());
  const auto again = DecodeSegment(*encoded);
  KILN_CHECK(again.has_value() && again->id == segment->id);
}

void CheckAttributes(Input bytes) {
  SymbolTable symbols;
  static_cast<void>(symbols.AddSymbol("n", {0, 4096}, 1));
  const auto attributes = DecodeAttributes(bytes, symbols);
  if (!attributes) return;
  const Bytes encoded = EncodeAttributes(*attributes, symbols);
  const auto again = DecodeAttributes(encoded, symbols);
  KILN_CHECK(again.has_value() && EncodeAttributes(*again, symbols) == encoded);
}

void CheckSignature(Input bytes) {
  if (bytes.size() < 8) return;
  std::vector<uint64_t> words(bytes.size() / 8);
  std::memcpy(words.data(), bytes.data() + bytes.size() % 8, words.size() * 8);
  const auto parts = ParseSignature(words, bytes[0] % 4);
  if (parts) static_cast<void>(ToString(*parts));
}

template <class T, Bytes (*encode)(const T&), Result<T> (*decode)(Input)>
void CheckEntry(Input bytes) {
  const auto value = decode(bytes);
  if (!value) return;
  const Bytes encoded = encode(*value);
  const auto again = decode(encoded);
  KILN_CHECK(again.has_value() && encode(*again) == encoded);
}

template <class T, Result<T> (*decode)(const Frame&)>
void CheckFrame(Input bytes) {
  if (bytes.empty()) return;
  const Frame frame{bytes[0], Bytes(bytes.begin() + 1, bytes.end())};
  const auto value = decode(frame);
  if (!value) return;
  const Frame encoded = ToFrame(*value);
  const auto again = decode(encoded);
  KILN_CHECK(again.has_value() && ToFrame(*again).payload == encoded.payload);
}

void CheckKeyTexts(Input bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  static_cast<void>(ParseSigners(text));
  static_cast<void>(AllowList::Parse(text));
  static_cast<void>(ParseUserId(text));
}

struct RecordRow {
  std::string_view name;
  void (*check)(Input);
};

constexpr RecordRow kRows[] = {
    {"guard", CheckGuardBytes},
    {"plan", CheckPlanBytes},
    {"record", CheckSignedRecord},
    {"record_body", CheckRecordBody},
    {"kernel_frame", CheckKernelFrame},
    {"kernel_blob", CheckKernelBlob},
    {"kernel_spec", CheckKernelSpec},
    {"segment", CheckSegmentBytes},
    {"attributes", CheckAttributes},
    {"signature", CheckSignature},
    {"info", CheckEntry<store::PlanInfo, store::EncodeInfo, store::DecodeInfo>},
    {"state", CheckEntry<store::PlanState, store::EncodeState, store::DecodeState>},
    {"lease", CheckEntry<store::Lease, store::EncodeLease, store::DecodeLease>},
    {"change", CheckEntry<cache::ChangeEntry, store::EncodeChange, store::DecodeChange>},
    {"witnesses", CheckEntry<store::Witnesses, store::EncodeWitnesses, store::DecodeWitnesses>},
    {"lower_answer", CheckFrame<LowerAnswer, LowerAnswerFrom>},
    {"compile_kernel_job", CheckFrame<CompileKernelJob, CompileKernelJobFrom>},
    {"compile_kernel_answer", CheckFrame<CompileKernelAnswer, CompileKernelAnswerFrom>},
    {"validate_job", CheckFrame<ValidateJob, ValidateJobFrom>},
    {"validate_answer", CheckFrame<ValidateAnswer, ValidateAnswerFrom>},
    {"key_texts", CheckKeyTexts},
};

}  // namespace

void Records(std::span<const uint8_t> bytes) {
  if (bytes.empty()) return;
  kRows[bytes[0] % std::size(kRows)].check(bytes.subspan(1));
}

int RecordRowNumber(std::string_view name) {
  for (size_t i = 0; i < std::size(kRows); ++i)
    if (kRows[i].name == name) return static_cast<int>(i);
  return -1;
}

}  // namespace kiln::fuzz

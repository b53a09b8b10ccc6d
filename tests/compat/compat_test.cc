// Version 1 of every message and record, frozen as bytes: whatever later versions do, they read these.
//
// Each entry makes a fixed sample and says how to compare a decoded one with it. `v1/<name>.bin` was written by the
// first version and never changes. KILN_WRITE_COMPAT=1 writes files that are missing, for new entries; it never touches
// one that is there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "common/artifact/kernel_blob.h"
#include "common/artifact/plan.h"
#include "common/artifact/record.h"
#include "common/bytecode/program_codec.h"
#include "common/bytecode/program_text.h"
#include "common/cache_api/codec.h"
#include "common/compile_api/compile_api.h"
#include "common/messaging/envelope.h"
#include "common/worker_api/worker_api.h"
#include "compile-service/ir/kernel_spec.h"
#include "tests/support/message_bytes.h"

namespace kiln {
namespace {

using testing::Flat;
using testing::Unflat;

Digest Id(uint8_t seed) {
  Digest digest;
  for (size_t i = 0; i < digest.bytes.size(); ++i) digest.bytes[i] = static_cast<uint8_t>(seed + i);
  return digest;
}

Program SampleProgram() {
  return ParseProgram(R"(program "sample" {
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
}

Segment SampleSegment() {
  const Program program = SampleProgram();
  return CanonicalSegment(program, FindSegments(program).at(0)).value();
}

Plan SamplePlan() {
  const Segment segment = SampleSegment();
  Plan plan;
  plan.segment = segment.id;
  plan.target = "x86-64-v3";
  plan.abi = 1;
  plan.numeric_mode = NumericMode::kDefault;
  plan.symbols = segment.body.symbols;
  const Dim n = plan.symbols.SymbolDim(0), half = plan.symbols.FloorDiv(n, Dim::Const(2));
  plan.guard.symbols = {{2, 4096, 2}};
  plan.guard.constraints = {{ConstraintKind::kLessEqual, half, Dim::Const(2048)}};
  plan.guard.inputs = {{true, AlignmentClass::k64}};
  plan.kernels = {Id(1)};
  plan.values = {
      {StorageKind::kInput, 0, DType::kF32, Dim::Const(0), {n, Dim::Const(4)}, {Dim::Const(4), Dim::Const(1)}},
      {StorageKind::kOutput, 0, DType::kF32, Dim::Const(0), {n, Dim::Const(1)}, {Dim::Const(1), Dim::Const(1)}},
      {StorageKind::kArena, 0, DType::kF32, half, {half}, {Dim::Const(1)}}};
  plan.buffers = {{plan.symbols.Mul(n, Dim::Const(4)), 0, 1}};
  plan.recipes = {{SampleProgram(), {0}}};
  plan.outputs = {1};
  plan.steps = {
      {KernelStep{0, {0, 2}, {n, half}, n, plan.symbols.Mul(n, Dim::Const(32)), Dim::Const(0)}, {0}, "matmul"},
      {ReferenceStep{TensorOp::kRelu, {}, {2}, {1}}, {1}, "relu"}};
  return plan;
}

PlanRecord SampleRecord() {
  PlanRecord record;
  record.plan_key = Id(2);
  record.segment = Id(3);
  record.target = "x86-64-v4";
  record.abi = 1;
  record.numeric_mode = 2;
  record.guard = {1, 2, 3};
  record.plan = {4, 5, 6, 7};
  record.kernels = {{Id(4), 128}, {Id(5), 0}};
  record.evidence = {ValidationKind::kExecuted, 3};
  record.provenance = {Id(6), 12345, 1764400000000, 1};
  return record;
}

SigningKey SampleKey() {
  std::vector<uint8_t> seed(32);
  for (size_t i = 0; i < seed.size(); ++i) seed[i] = static_cast<uint8_t>(i);
  return SigningKey::FromSeed(seed).value();
}

ir::KernelSpec SampleSpec() {
  ir::LoopNestSpec nest;
  nest.outer = {ir::SpecInt::Argument(0)};
  nest.inner = ir::SpecInt::Const(64);
  nest.reduce_inner = true;
  nest.accesses = {{0, DType::kF32, {ir::SpecInt::Argument(1), ir::SpecInt::Const(1)}},
                   {1, DType::kF32, {ir::SpecInt::Const(1), ir::SpecInt::Const(0)}}};
  ir::ScalarNode load{ir::ScalarOp::kLoad}, result{ir::ScalarOp::kStageResult};
  nest.body = {load, result};
  ir::Stage sum, store;
  sum.kind = ir::Stage::Kind::kReduce;
  store.kind = ir::Stage::Kind::kStore;
  store.domain = ir::Stage::Domain::kRow;
  store.stores = {{1, 1}};
  nest.stages = {sum, store};
  return {nest, 2, 2};
}

CompileRequest SampleRequest() {
  return {EncodeSegment(SampleSegment()).value(),
          "x86-64-v4",
          NumericMode::kDefault,
          PlanTier::kGeneric,
          17,
          {{2, 4096, 2}},
          {64}};
}

RunRequest SampleRun() {
  const std::vector<float> values = {1, 2, 3, 4};
  RunRequest request{"model", {{"x", Tensor::Of<float>(DType::kF32, {1, 4}, values)}}};
  request.knows_state_lost = false;  // callers that do not say it do not know it
  return request;
}

struct Entry {
  const char* name;
  std::function<Bytes()> make;
  std::function<bool(const Bytes&)> same;  // decodes, and compares with the sample
};

template <class T>
bool SameMessage(const Bytes& bytes, const T& sample) {
  T decoded;
  return Decode(Unflat(bytes), decoded).has_value() && Flat(Encode(decoded)) == Flat(Encode(sample));
}

template <class T>
bool SameCacheMessage(const Bytes& bytes, const T& sample) {
  T decoded;
  return cache::Decode(Unflat(bytes), decoded).has_value() &&
         Flat(cache::Encode(decoded)) == Flat(cache::Encode(sample));
}

const cache::VariantsReply kVariants{
    {{Id(2), "x86-64-v4", 1, 2, {9, 9}, {ValidationKind::kExecuted, 3}, Id(6), 1, 1764400000000}}};
const cache::ChangeLogReply kChanges{{{5, cache::ChangeKind::kPublish, Id(2), Id(3), "x86-64-v4"}}, 5, false};
const cache::PublishPlanRequest kPublish{{1, 2, 3}, {{Id(7), Id(8)}}};
const cache::ReportRequest kReport{Id(2), cache::ReportKind::kMismatch, 1, "worker-1", "output 0"};

std::vector<Entry> Records() {
  return {
      {"program", [] { return EncodeProgram(SampleProgram()).value(); },
       [](const Bytes& b) {
         auto p = DecodeProgram(b);
         return p.has_value() && PrintProgram(*p) == PrintProgram(SampleProgram());
       }},
      {"segment", [] { return EncodeSegment(SampleSegment()).value(); },
       [](const Bytes& b) {
         auto s = DecodeSegment(b);
         return s.has_value() && s->id == SampleSegment().id;
       }},
      {"guard", [] { return EncodeGuard(SamplePlan().guard, SamplePlan().symbols); },
       [](const Bytes& b) {
         SymbolTable t;
         auto g = DecodeGuard(b, &t);
         return g.has_value() && EncodeGuard(*g, t) == EncodeGuard(SamplePlan().guard, SamplePlan().symbols);
       }},
      {"plan", [] { return EncodePlan(SamplePlan()); },
       [](const Bytes& b) {
         auto p = DecodePlan(b);
         return p.has_value() && ComputePlanKey(*p) == ComputePlanKey(SamplePlan()) &&
                EncodePlan(*p) == EncodePlan(SamplePlan());
       }},
      {"record", [] { return EncodeAndSign(SampleRecord(), SampleKey()); },
       [](const Bytes& b) {
         auto r = DecodeAndVerify(b, {SampleKey().public_key()});
         return r.has_value() && r->record == SampleRecord();
       }},
      {"kernel_frame", [] { return FrameKernelBlob(Bytes{1, 2, 3, 4}); },
       [](const Bytes& b) {
         auto k = UnframeKernelBlob(b, KernelIdOf(Bytes{1, 2, 3, 4}));
         return k.has_value() && *k == Bytes{1, 2, 3, 4};
       }},
      {"kernel_blob", [] { return BuildKernelBlob(Target::kX86V3, 0, std::vector<uint8_t>(64, 0xc3)); },
       [](const Bytes& b) {
         auto k = ParseKernelBlob(b);
         return k.has_value() && k->target == Target::kX86V3 && k->entry_offset == kKernelHeaderBytes;
       }},
      {"kernel_spec", [] { return ir::EncodeSpec(SampleSpec()); },
       [](const Bytes& b) {
         auto s = ir::DecodeSpec(b);
         return s.has_value() && *s == SampleSpec();
       }},
  };
}

std::vector<Entry> Messages() {
  return {
      {"envelope",
       [] {
         Envelope e;
         e.request_id = 7;
         e.method = 3;
         e.deadline_ms = 100;
         e.trace_id = 9;
         e.table = {10, 11};
         e.log_head = 12;
         e.payload = {1, 2};
         return EncodeEnvelope(e);
       },
       [](const Bytes& b) {
         auto e = DecodeEnvelope(b);
         return e.has_value() && e->request_id == 7 && e->method == 3 && e->deadline_ms == 100 && e->trace_id == 9 &&
                e->table.rows == 10 && e->table.hash == 11 && e->log_head == 12 && e->payload == Bytes{1, 2};
       }},
      {"compile_request", [] { return Flat(EncodeCompileRequest(SampleRequest())); },
       [](const Bytes& b) {
         auto r = DecodeCompileRequest(Unflat(b));
         return r.has_value() && r->Key() == SampleRequest().Key() && r->priority == 17;
       }},
      {"compile_reply", [] { return Flat(EncodeCompileReply({Id(2), true, 5, 4, 3, 2, 99})); },
       [](const Bytes& b) {
         auto r = DecodeCompileReply(Unflat(b));
         return r.has_value() && r->plan_key == Id(2) && r->already_there && r->kernels == 5 &&
                r->kernels_compiled == 4 && r->compile_us == 99;
       }},
      {"run_request", [] { return Flat(Encode(SampleRun())); },
       [](const Bytes& b) { return SameMessage(b, SampleRun()); }},
      {"load_reply",
       [] { return Flat(Encode(LoadReply{{{"x", DType::kF32, true, {-1, 4}, "f32[n, 4]"}}, {}, 1, 2, 3})); },
       [](const Bytes& b) {
         return SameMessage(b, LoadReply{{{"x", DType::kF32, true, {-1, 4}, "f32[n, 4]"}}, {}, 1, 2, 3});
       }},
      {"variants_reply", [] { return Flat(cache::Encode(kVariants)); },
       [](const Bytes& b) { return SameCacheMessage(b, kVariants); }},
      {"change_log_reply", [] { return Flat(cache::Encode(kChanges)); },
       [](const Bytes& b) { return SameCacheMessage(b, kChanges); }},
      {"publish_plan_request", [] { return Flat(cache::Encode(kPublish)); },
       [](const Bytes& b) { return SameCacheMessage(b, kPublish); }},
      {"report_request", [] { return Flat(cache::Encode(kReport)); },
       [](const Bytes& b) { return SameCacheMessage(b, kReport); }},
  };
}

std::vector<Entry> Entries() {
  std::vector<Entry> entries = Records();
  std::ranges::copy(Messages(), std::back_inserter(entries));
  return entries;
}

std::string PathOf(const Entry& entry) {
  return std::string(KILN_SOURCE_DIR) + "/tests/compat/v1/" + entry.name + ".bin";
}

TEST(Compat, EveryFrozenMessageAndRecordIsRead) {
  for (const Entry& entry : Entries()) {
    if (std::getenv("KILN_WRITE_COMPAT") != nullptr && !std::filesystem::exists(PathOf(entry))) {
      const Bytes bytes = entry.make();
      std::ofstream(PathOf(entry), std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
    std::ifstream file(PathOf(entry), std::ios::binary);
    ASSERT_TRUE(file.good())
        << entry.name << " has no frozen bytes; run this test once with KILN_WRITE_COMPAT=1 and check the file in";
    const Bytes bytes((std::istreambuf_iterator<char>(file)), {});
    EXPECT_TRUE(entry.same(bytes)) << entry.name << ": version 1 is not read any more, or read differently";
    Bytes damaged = bytes;
    damaged.resize(damaged.size() / 2);
    EXPECT_FALSE(entry.same(damaged)) << entry.name << " cut in half passes for whole";
  }
}

// The canonical ones are hashed: their bytes, not only their meaning, must stay.
TEST(Compat, CanonicalBytesAreStillWrittenTheSame) {
  for (const Entry& entry : Entries()) {
    const std::string name = entry.name;
    if (name != "guard" && name != "kernel_spec" && name != "kernel_blob") continue;
    std::ifstream file(PathOf(entry), std::ios::binary);
    EXPECT_EQ(entry.make(), Bytes((std::istreambuf_iterator<char>(file)), {})) << name;
  }
}

TEST(Compat, IdsAreStable) {
  EXPECT_EQ(ComputePlanKey(SamplePlan()).Hex().size(), 64u);
  std::ifstream file(std::string(KILN_SOURCE_DIR) + "/tests/compat/v1/ids.txt");
  const std::string ids = SampleSegment().id.Hex() + "\n" + ComputePlanKey(SamplePlan()).Hex() + "\n" +
                          ir::ComputeKernelKey(SampleSpec(), "x86-64-v3", Id(9)).Hex() + "\n";
  if (std::getenv("KILN_WRITE_COMPAT") != nullptr && !file.good())
    std::ofstream(std::string(KILN_SOURCE_DIR) + "/tests/compat/v1/ids.txt") << ids;
  std::ifstream again(std::string(KILN_SOURCE_DIR) + "/tests/compat/v1/ids.txt");
  EXPECT_EQ(std::string((std::istreambuf_iterator<char>(again)), {}), ids) << "segment id, plan key, kernel key";
}

}  // namespace
}  // namespace kiln

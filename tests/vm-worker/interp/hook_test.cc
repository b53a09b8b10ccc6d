#include <gmock/gmock.h>

#include "tests/vm-worker/interp/run_text.h"

namespace kiln {
namespace {

constexpr std::string_view kProgram = R"(program "p" {
  symbol n in [0, 64]
  constant w : f32[2, 24] = splat 0.5
  constant shape : i64[2] = [-1, 2]
  func main(%x: f32[n, 4]) -> (%z) {
    %c : f32[2, 24] = Constant() {value = @w}
    %s : i64[2] = Constant() {value = @shape}
    %r : f32[2*n, 2] = Reshape(%x, %s)
    %z : f32[2*n, 24] = MatMul(%r, %c)
  }
})";

class RecordingHook : public SegmentHook {
 public:
  explicit RecordingHook(SegmentVerdict verdict) : verdict_(verdict) {}
  SegmentVerdict Enter(const SegmentEntry& entry) override {
    ++enters;
    EXPECT_EQ(entry.inputs.size(), 1u);
    EXPECT_EQ(entry.weights.size(), 1u);
    EXPECT_EQ(entry.weights[0].dims, (Dims{2, 24}));
    Signature expected;
    BuildSignature(entry.inputs, entry.parameters, &expected);
    EXPECT_EQ(*entry.signature, expected);
    if (verdict_ == SegmentVerdict::kExecuted) {
      const int64_t rows = 2 * entry.inputs[0].dims[0];
      EXPECT_NE(entry.memory->AllocateScratch(100), nullptr);
      entry.outputs[0] =
          MakeRef(DType::kF32, {rows, 24}, entry.memory->AllocateOutput(0, static_cast<size_t>(rows) * 96));
      std::fill_n(entry.outputs[0].as<float>(), rows * 24, 7.0f);
    }
    return verdict_;
  }
  void Leave(const SegmentEntry& entry, int64_t elapsed_ns) override {
    ++leaves;
    EXPECT_GE(elapsed_ns, 0);
    EXPECT_EQ(entry.outputs[0].dims, (Dims{2 * entry.inputs[0].dims[0], 24}));
    seen = Values(entry.outputs[0]);
  }
  int enters = 0, leaves = 0;
  std::vector<float> seen;

 private:
  SegmentVerdict verdict_;
};

// Gives its input back as the segment's output.
class IdentityHook : public SegmentHook {
 public:
  SegmentVerdict Enter(const SegmentEntry& entry) override {
    ++enters;
    for (TensorRef& output : entry.outputs) output = entry.inputs[0];
    return SegmentVerdict::kExecuted;
  }
  void Leave(const SegmentEntry&, int64_t) override {}
  int enters = 0;
};

// What a plan makes is held to stated sizes that nothing proves, as what the interpreter makes is.
TEST(Hook, WhatAPlanMakesHasTheStatedSizes) {
  const auto program = LoadText(R"(program "p" {
    symbol n in [0, 64]
    symbol m in [0, 64]
    func main(%x: f32[n], %y: f32[m]) -> (%a, %b) {
      %a : f32[2*n] = Relu(%x)
      %p : i64[1, m] = NonZero(%y)
      %b : f32[m] = Neg(%y)
    }
  })");
  ASSERT_TRUE(program);
  VmContext context;
  const std::vector<std::pair<int64_t, bool>> sizes{{0, true}, {3, false}, {0, true}};
  for (const auto& [size, good] : sizes) {
    IdentityHook hook;
    const Tensor x = Iota({size}), y = Tensor::Of<float>(DType::kF32, {2}, std::vector<float>{1, 1});
    const auto outputs = context.Run(*program, std::vector{x.ref, y.ref}, {.hook = &hook});
    ASSERT_EQ(outputs.has_value(), good) << size;
    EXPECT_EQ(hook.enters, good ? 2 : 1);
    if (good) continue;
    EXPECT_THAT(outputs.error().message, ::testing::HasSubstr("dim 0 of value \"a\" is 3; 2*n is 6 here"));
  }
}

TEST(Hook, MayRunTheSegment) {
  const auto program = LoadText(kProgram);
  ASSERT_TRUE(program);
  VmContext context;
  RecordingHook hook(SegmentVerdict::kExecuted);
  const auto outputs = context.Run(*program, std::vector{Iota({3, 4}).ref}, {.hook = &hook});
  ASSERT_TRUE(outputs) << ToString(outputs.error());
  EXPECT_EQ(Values((*outputs)[0].ref), std::vector<float>(6 * 24, 7.0f));
  EXPECT_EQ(hook.enters, 1);
  EXPECT_EQ(hook.leaves, 0);
  EXPECT_EQ(context.stats().memo_misses, 0u);
}

TEST(Hook, IsToldHowLongTheInterpreterTookWhenItAsks) {
  const auto program = LoadText(kProgram);
  ASSERT_TRUE(program);
  for (bool static_forms : {true, false}) {
    VmContext context;
    RecordingHook silent(SegmentVerdict::kInterpret), told(SegmentVerdict::kInterpretAndTell);
    for (RecordingHook* hook : {&silent, &told}) {
      const auto outputs =
          context.Run(*program, std::vector{Iota({3, 4}).ref}, {.hook = hook, .static_forms = static_forms});
      ASSERT_TRUE(outputs) << ToString(outputs.error());
      if (hook == &told) {
        EXPECT_EQ(hook->seen, Values((*outputs)[0].ref));
      }
    }
    EXPECT_EQ(silent.leaves, 0);
    EXPECT_EQ(told.leaves, 1);
  }
}

}  // namespace
}  // namespace kiln

// Generated code whose results lie where operands lie, by several threads, against the evaluator with memory apart:
// random chains, rows and columns with reductions; sizes around the vector length, 0 and 1 included.
#include "compile-service/ir/in_place.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <thread>

#include "compile-service/codegen/llvm/kernel_compiler.h"
#include "compile-service/validate/validate_kernel.h"
#include "tests/support/executable_memory.h"
#include "tests/support/spec_builder.h"

namespace kiln {
namespace {

using ir::Combine;
using ir::ScalarOp;
using ir::SpecInt;
using ir::Stage;
using testing::ProgramBuilder;
using testing::ReduceStage;
using testing::StoreStage;

struct Case {
  ir::KernelSpec spec;
  std::vector<int64_t> dims;
  int64_t elements = 0;  // of every pointer
};

// Up to three operands and two results over one dense space, with reductions between them; any two with one stride
// argument each.
class RandomCase {
 public:
  RandomCase(uint64_t seed, int lanes) : random_(seed), lanes_(lanes) {}

  Case Make() {
    nest_.reduce_inner = Pick(2) == 0;
    nest_.pairs_rows = nest_.reduce_inner && Pick(2) == 0;
    const int outer = Pick(3);
    const bool reduce = !nest_.reduce_inner && outer > 0 && Pick(2) == 0;
    std::vector<int64_t> extents;
    for (int i = 0; i < outer; ++i) extents.push_back(Pick(6));
    if (reduce) extents.push_back(1 + Pick(5));
    const int64_t inners[] = {0, 1, 3, lanes_ - 1, lanes_, lanes_ + 1, 4 * lanes_ + 3, 9 * lanes_};
    extents.push_back(inners[Pick(8)]);
    for (int i = 0; i < outer; ++i) nest_.outer.push_back(Int(extents[static_cast<size_t>(i)]));
    if (reduce) nest_.reduce.push_back(Int(extents[static_cast<size_t>(outer)]));
    nest_.inner = Int(extents.back());
    const int operands = 1 + Pick(3), results = 1 + Pick(2);
    for (int i = 0; i < operands + results; ++i) nest_.accesses.push_back({i, DType::kF32, Strides(extents)});
    AddStages(operands, results);
    nest_.body = program_.Take();
    int64_t elements = 1;
    for (int64_t extent : extents) elements *= extent;
    return {{nest_, operands + results, static_cast<int32_t>(dims_.size())}, dims_, elements};
  }

 private:
  int Pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  SpecInt Int(int64_t value) {
    if (Pick(2) == 0) return SpecInt::Const(value);
    dims_.push_back(value);
    return SpecInt::Argument(static_cast<int64_t>(dims_.size()) - 1);
  }
  std::vector<SpecInt> Strides(const std::vector<int64_t>& extents) {
    std::vector<SpecInt> strides(extents.size());
    int64_t stride = 1;
    for (size_t i = extents.size(); i-- > 0;) {
      // Large ones are arguments always, as lowering has them; else kernels would never be equal.
      if (i + 1 == extents.size()) {
        strides[i] = SpecInt::Const(1);
      } else {
        dims_.push_back(stride);
        strides[i] = SpecInt::Argument(static_cast<int64_t>(dims_.size()) - 1);
      }
      stride *= extents[i];
    }
    return strides;
  }
  int32_t Sum(int operands) {
    int32_t value = program_.Load(Pick(operands));
    for (int i = Pick(3); i > 0; --i)
      value = program_.Op(Pick(2) == 0 ? ScalarOp::kAdd : ScalarOp::kMax, value, program_.Load(Pick(operands)));
    return Pick(2) == 0 ? program_.Op(ScalarOp::kTanh, value) : value;
  }
  void AddStages(int operands, int results) {
    const bool reduces = nest_.reduce_inner || !nest_.reduce.empty();
    const Stage::Domain domain = reduces ? Stage::Domain::kFull : Stage::Domain::kInner;
    for (int result = 0; result < results; ++result) {
      int32_t value = Sum(operands);
      if (reduces && Pick(2) == 0) {
        nest_.stages.push_back(ReduceStage(Pick(2) == 0 ? Combine::kMax : Combine::kSum, Sum(operands)));
        const auto stage = static_cast<int32_t>(nest_.stages.size()) - 1;
        value = program_.Op(ScalarOp::kSub, value, program_.StageResult(stage));
      }
      nest_.stages.push_back(StoreStage(domain, {{operands + result, value}}));
    }
  }

  std::mt19937_64 random_;
  const int64_t lanes_;
  ir::LoopNestSpec nest_;
  ProgramBuilder program_;
  std::vector<int64_t> dims_;
};

using Memory = std::vector<std::vector<float>>;

std::vector<void*> PointersOf(Memory& memory) {
  std::vector<void*> pointers;
  for (std::vector<float>& buffer : memory) pointers.push_back(buffer.data());
  return pointers;
}

// [0, range) in three parts at once.
void RunOnThreads(const testing::ExecutableKernel& kernel, const Case& test, std::span<void* const> pointers,
                  int64_t range) {
  std::vector<std::jthread> threads;
  for (int64_t part = 0; part < 3; ++part)
    threads.emplace_back([&, part] {
      const int64_t begin = range * part / 3, end = range * (part + 1) / 3;
      if (begin < end) kernel.Run(pointers, test.dims, begin, end);
    });
}

class InPlaceCode : public ::testing::TestWithParam<Target> {};

TEST_P(InPlaceCode, AgreesWithTheEvaluatorOnMemoryApart) {
  auto compiler = codegen::KernelCompiler::Create(GetParam());
  ASSERT_TRUE(compiler.has_value());
  const int lanes = InfoOf(GetParam()).f32_lanes();
  size_t pairs = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const Case test = RandomCase(seed, lanes).Make();
    const std::string what = "seed " + std::to_string(seed) + "\n" + ir::PrintSpec(test.spec);
    ASSERT_TRUE(ir::VerifySpec(test.spec).has_value()) << what;
    const std::vector<ir::InPlaceOperand> in_place = ir::InPlaceAt(test.spec, test.dims);
    if (in_place.empty()) continue;
    pairs += in_place.size();
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<float> number(-2, 2);
    Memory expected(static_cast<size_t>(test.spec.pointers));
    for (std::vector<float>& buffer : expected) {
      buffer.resize(static_cast<size_t>(test.elements) + 1);
      for (float& value : buffer) value = number(random);
    }
    Memory actual = expected;
    std::vector<void*> pointers = PointersOf(actual);
    for (const ir::InPlaceOperand& pair : in_place)
      pointers[static_cast<size_t>(pair.stored)] = pointers[static_cast<size_t>(pair.loaded)];
    const int64_t range = ir::RangeOf(test.spec, test.dims, lanes);
    ASSERT_TRUE(ir::EvaluateSpec(test.spec, PointersOf(expected), test.dims, lanes, 0, range).has_value()) << what;
    const auto code = (*compiler)->Compile(test.spec);
    ASSERT_TRUE(code.has_value()) << what;
    const testing::ExecutableKernel kernel(code->bytes);
    ASSERT_TRUE(kernel.ok());
    RunOnThreads(kernel, test, pointers, range);
    for (const ir::Stage& stage : std::get<ir::LoopNestSpec>(test.spec.kernel).stages)
      for (const ir::Store& store : stage.stores) {
        const std::vector<float>& wanted = expected[static_cast<size_t>(store.access)];
        const auto* got = static_cast<const float*>(pointers[static_cast<size_t>(store.access)]);
        for (int64_t i = 0; i < (range > 0 ? test.elements : 0); ++i)
          ASSERT_NEAR(got[i], wanted[static_cast<size_t>(i)], 1e-4 * (1 + std::abs(wanted[static_cast<size_t>(i)])))
              << what << "pointer " << store.access << " element " << i;
      }
  }
  EXPECT_GT(pairs, 50u);
}

INSTANTIATE_TEST_SUITE_P(EveryHostTarget, InPlaceCode, ::testing::ValuesIn(HostTargets()),
                         [](const auto& info) { return std::to_string(static_cast<int>(info.param)); });

// Of one row: y = 2 x, then z = x - sum of the row, in one stage or in two.
ir::KernelSpec TwoResults(bool in_two_stages) {
  ProgramBuilder program;
  const int32_t x = program.Load(0), sum = program.StageResult(0);
  const int32_t twice = program.Op(ScalarOp::kAdd, x, x), rest = program.Op(ScalarOp::kSub, x, sum);
  ir::LoopNestSpec nest;
  nest.outer = {SpecInt::Argument(0)};
  nest.inner = SpecInt::Argument(1);
  nest.reduce_inner = true;
  for (int32_t pointer : {0, 1, 2})
    nest.accesses.push_back({pointer, DType::kF32, {SpecInt::Argument(1), SpecInt::Const(1)}});
  nest.stages = {ReduceStage(Combine::kSum, x), StoreStage(Stage::Domain::kFull, {{1, twice}})};
  if (in_two_stages) {
    nest.stages.push_back(StoreStage(Stage::Domain::kFull, {{2, rest}}));
  } else {
    nest.stages[1].stores.push_back({2, rest});
  }
  nest.body = program.Take();
  return {nest, 3, 2};
}

// The code of the second reads x again after y is stored: right on memory apart, wrong in place.
TEST(InPlaceValidation, CatchesCodeThatReadsAfterItWrote) {
  const Target target = HostTargets().front();
  auto compiler = codegen::KernelCompiler::Create(target).value();
  const std::vector<std::vector<int64_t>> calls = {{5, 70}};
  const ir::KernelSpec spec = TwoResults(false);
  ASSERT_FALSE(ir::InPlaceOperands(spec).empty());
  EXPECT_TRUE(ValidateKernel(spec, compiler->Compile(spec)->bytes, target, calls, 1).has_value());
  const auto late = compiler->Compile(TwoResults(true));
  const auto compared = ValidateKernel(spec, late->bytes, target, calls, 1);
  ASSERT_FALSE(compared.has_value());
  EXPECT_NE(compared.error().message.find("trial 0 in place"), std::string::npos) << compared.error().message;
  EXPECT_TRUE(ValidateKernel(TwoResults(true), late->bytes, target, calls, 1).has_value());
}

}  // namespace
}  // namespace kiln

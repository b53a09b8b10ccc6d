// A steady run makes no heap allocation and no page fault. A program of its own: it counts every malloc.
#include <sys/resource.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "tests/common/ops/case_file.h"
#include "tests/support/held_memory.h"
#include "tests/support/shared_material.h"
#include "tests/vm-worker/interp/run_text.h"
#include "vm-worker/onnx/importer.h"

#if KILN_ADDRESS_SANITIZER || defined(__SANITIZE_THREAD__)
#define KILN_COUNTS_MALLOC 0
#else
#define KILN_COUNTS_MALLOC 1
#endif

namespace {
thread_local int64_t allocations = 0;
}  // namespace

#if KILN_COUNTS_MALLOC
// glibc's own, under the names it keeps for those who replace the public ones.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t bytes) {
  ++allocations;
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  ++allocations;
  return __libc_calloc(count, bytes);
}
void* realloc(void* data, size_t bytes) {
  ++allocations;
  return __libc_realloc(data, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  ++allocations;
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  ++allocations;
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** data, size_t alignment, size_t bytes) {
  ++allocations;
  *data = __libc_memalign(alignment, bytes);
  return *data == nullptr ? ENOMEM : 0;
}
}
#endif

namespace kiln {
namespace {

int64_t PageFaults() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt + usage.ru_majflt;
}

// Runs each set of inputs until its signature is known, then again and counts.
void ExpectSteady(const LoadedProgram& program, const std::vector<std::vector<TensorRef>>& calls, int counted = 10) {
  VmContext context;
  const auto run = [&](int rounds) {
    for (int i = 0; i < rounds; ++i)
      for (const std::vector<TensorRef>& inputs : calls)
        if (!context.RunBorrowed(program, inputs).has_value()) std::abort();
  };
  for (const std::vector<TensorRef>& inputs : calls) {
    const auto first = context.RunBorrowed(program, inputs);
    ASSERT_TRUE(first.has_value()) << ToString(first.error());
  }
  run(2);
  const int64_t allocated = allocations, faults = PageFaults();
  run(counted);
  const int64_t allocated_now = allocations, faults_now = PageFaults();
  EXPECT_EQ(allocated_now - allocated, 0);
  EXPECT_EQ(faults_now - faults, 0);
  EXPECT_EQ(context.stats().memo_evictions, 0u);
}

void ExpectSteadyText(const std::string& text, const std::vector<std::vector<TensorRef>>& calls) {
  const auto program = LoadText(text.c_str());
  ASSERT_TRUE(program);
  ExpectSteady(*program, calls);
}

class SteadyRun : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!KILN_COUNTS_MALLOC) GTEST_SKIP() << "the sanitizer has malloc";
  }
};

TEST_F(SteadyRun, OfViewsProductsAndALoop) {
  const Tensor trips = Ints({}, {5}), small = Iota({3, 4}), large = Iota({50, 4});
  ExpectSteadyText(R"(program "p" {
    symbol n in [1, 64]
    constant w : f32[4, 24] = splat 0.5
    constant shape : i64[3] = [-1, 2, 12]
    func main(%trips: i64[], %x: f32[n, 4]) -> (%v, %last) {
      %c : f32[4, 24] = Constant() {value = @w}
      %s : i64[3] = Constant() {value = @shape}
      %y : f32[n, 24] = MatMul(%x, %c)
      %r : f32[n, 2, 12] = Reshape(%y, %s)
      %t : f32[2, n, 12] = Transpose(%r) {perm = [1, 0, 2]}
      %u : f32[2, n, 12] = Softmax(%t)
      %v : f32[2, n, 12] = Add(%u, %u)
      %last : f32[n, 4] = Loop(%trips, _, %x) body(%i: i64[], %go: bool[], %a: f32[n, 4]) -> (%go, %next) {
        %m : f32[n, 4] = Relu(%a)
        %next : f32[n, 4] = Add(%m, %x)
      }
    }
  })",
                   {{trips.ref, small.ref}, {trips.ref, large.ref}});
}

TEST_F(SteadyRun, OfConvolutionPoolingNormalizationAndReduction) {
  const Tensor narrow = Iota({1, 3, 16, 8}), wide = Iota({2, 3, 16, 24});
  ExpectSteadyText(R"(program "p" {
    symbol b in [1, 4]
    symbol n in [8, 64]
    constant w : f32[4, 3, 3, 3] = splat 0.25
    constant scale : f32[4] = splat 1.5
    constant axes : i64[2] = [2, 3]
    func main(%x: f32[b, 3, 16, n]) -> (%r, %q) {
      %k : f32[4, 3, 3, 3] = Constant() {value = @w}
      %s : f32[4] = Constant() {value = @scale}
      %a : i64[2] = Constant() {value = @axes}
      %c : f32[b, 4, 16, n] = Conv(%x, %k) {pads = [1, 1, 1, 1]}
      %i : f32[b, 4, 16, n] = InstanceNormalization(%c, %s, %s)
      %p : f32[b, 4, 1, 1] = GlobalAveragePool(%i)
      %q : f32[b, 4, 16, n] = Mul(%i, %p)
      %r : f32[b, 4, 1, 1] = ReduceMean(%q, %a)
    }
  })",
                   {{narrow.ref}, {wide.ref}});
}

// One node over run-time inputs: what its operands hold is known to the run alone.
Program ProgramOf(const testing::FileCase& test) {
  Program program{.name = "case"};
  program.constants = test.op.constants;
  Function& function = program.functions.emplace_back(Function{.name = "main"});
  Region& region = function.regions.emplace_back();
  Node node{.op = test.op.op, .name = "node", .attributes = test.op.attributes};
  const auto add = [&function](TensorDesc desc) {
    function.values.push_back({"v" + std::to_string(function.values.size()), std::move(desc)});
    return static_cast<ValueId>(function.values.size() - 1);
  };
  for (const std::optional<TensorRef>& input : test.op.inputs) {
    node.inputs.push_back(input ? add(StaticDesc(input->dtype, input->dims)) : kNoValue);
    if (input) region.inputs.push_back(node.inputs.back());
  }
  for (const Tensor& expected : test.expected) {
    TensorDesc desc{.dtype = expected.dtype()};
    desc.dims.emplace();
    for (int d = 0; d < expected.dims().rank(); ++d) desc.dims->push_back(program.symbols.FreshSymbol());
    node.outputs.push_back(add(std::move(desc)));
    region.outputs.push_back(node.outputs.back());
  }
  region.nodes.push_back(std::move(node));
  return program;
}

TEST_F(SteadyRun, OfEveryOp) {
  const std::vector<testing::FileCase> cases =
      testing::ReadCaseFile(std::string(KILN_SOURCE_DIR) + "/tests/common/ops/cases.txt");
  for (const testing::FileCase& test : cases) {
    SCOPED_TRACE("cases.txt:" + std::to_string(test.line) + ": " + test.text.substr(0, 160));
    const auto program = LoadedProgram::Load(ProgramOf(test));
    ASSERT_TRUE(program.has_value()) << ToString(program.error());
    std::vector<TensorRef> inputs;
    for (const std::optional<TensorRef>& input : test.op.inputs)
      if (input) inputs.push_back(*input);
    ExpectSteady(**program, {inputs}, 3);
  }
}

// The default model of the main job, where shared/ is there.
TEST_F(SteadyRun, OfARecogniser) {
  const std::filesystem::path path = SharedDirectory() / "models/ppocr/ch_PP-OCRv4_rec_infer.onnx";
  KILN_NEEDS_SHARED(path);
  auto imported = ImportOnnx(path);
  ASSERT_TRUE(imported.has_value()) << ToString(imported.error());
  const auto program = LoadedProgram::Load(std::move(imported->program));
  ASSERT_TRUE(program.has_value()) << ToString(program.error());
  const Tensor narrow = Iota({1, 3, 48, 32}), wide = Iota({1, 3, 48, 72});
  ExpectSteady(**program, {{narrow.ref}, {wide.ref}}, 2);
}

}  // namespace
}  // namespace kiln

// How many kernels plans need: equal layers share theirs, and a new shape reuses most of another's.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "tests/compile-service/lower/check_program.h"
#include "tests/support/shared_material.h"
#include "vm-worker/onnx/importer.h"

namespace kiln::testing {
namespace {

// `layers` encoder layers of width 64 with 4 heads, each with weights of its own.
std::string Encoder(int layers) {
  std::string constants, nodes;
  const auto constant = [&](const std::string& name, const std::string& dims) {
    constants += "constant " + name + " : f32[" + dims + "] = splat 0.125\n";
    nodes += "%" + name + " : f32[" + dims + "] = Constant() {value = @" + name + "}\n";
  };
  const auto linear = [&](const std::string& from, const std::string& to, int in, int out) {
    constant(to + "w", std::to_string(in) + ", " + std::to_string(out));
    constant(to + "b", std::to_string(out));
    nodes += "%" + to + "m : f32[*] = MatMul(%" + from + ", %" + to + "w)\n%" + to + " : f32[*] = Add(%" + to + "m, %" +
             to + "b)\n";
  };
  const auto heads = [&](const std::string& from, const std::string& perm) {
    nodes += "%" + from + "r : f32[*] = Reshape(%" + from + ", %split)\n%" + from + "t : f32[*] = Transpose(%" + from +
             "r) {perm = " + perm + "}\n";
  };
  const auto add_norm = [&](const std::string& a, const std::string& b, const std::string& to) {
    constant(to + "g", "64");
    nodes += "%" + to + "a : f32[*] = Add(%" + a + ", %" + b + ")\n%" + to + " : f32[*] = LayerNormalization(%" + to +
             "a, %" + to + "g, %" + to + "g) {axis = -1}\n";
  };
  std::string x = "x";
  for (int i = 0; i < layers; ++i) {
    const std::string l = "l" + std::to_string(i);
    for (const char* part : {"q", "k", "v"}) linear(x, l + part, 64, 64);
    heads(l + "q", "[1, 0, 2]");
    heads(l + "k", "[1, 2, 0]");
    heads(l + "v", "[1, 0, 2]");
    nodes += "%" + l + "s : f32[*] = MatMul(%" + l + "qt, %" + l + "kt)\n%" + l + "p : f32[*] = Softmax(%" + l +
             "s) {axis = -1}\n%" + l + "c : f32[*] = MatMul(%" + l + "p, %" + l + "vt)\n%" + l +
             "ct : f32[*] = Transpose(%" + l + "c) {perm = [1, 0, 2]}\n%" + l + "y : f32[*] = Reshape(%" + l +
             "ct, %merge)\n";
    linear(l + "y", l + "o", 64, 64);
    add_norm(x, l + "o", l + "n");
    linear(l + "n", l + "u", 64, 128);
    nodes += "%" + l + "e : f32[*] = Gelu(%" + l + "u)\n";
    linear(l + "e", l + "d", 128, 64);
    add_norm(l + "n", l + "d", l + "z");
    x = l + "z";
  }
  return "program \"encoder\" { symbol n in [1, 512]\nconstant split : i64[3] = [0, 4, 16]\n"
         "constant merge : i64[2] = [0, 64]\n" +
         constants + "func main(%x: f32[n, 64]) -> (%" + x +
         ") {\n%split : i64[3] = Constant() {value = @split}\n%merge : i64[2] = Constant() {value = @merge}\n" + nodes +
         "} }";
}

lower::LoweredSegment Lowered(const Segment& segment, const std::vector<int64_t>& values, bool exact) {
  lower::LowerRequest request{segment, Target::kX86V4, NumericMode::kDefault, values, {}};
  if (exact)
    for (int64_t value : values) request.symbols.push_back({lower::SymbolChoice::Kind::kExact, value, value, 1});
  auto lowered = lower::LowerSegment(request);
  EXPECT_TRUE(lowered.has_value()) << (lowered ? "" : ToString(lowered.error()));
  return lowered ? std::move(*lowered) : lower::LoweredSegment{};
}

TEST(SharedKernels, TwelveLayersCostTheKernelsOfOne) {
  for (const bool exact : {false, true}) {
    const lower::LoweredSegment one = Lowered(SegmentOf(Encoder(1)), {40}, exact);
    const lower::LoweredSegment twelve = Lowered(SegmentOf(Encoder(12)), {40}, exact);
    EXPECT_GT(one.specs.size(), 3u);
    EXPECT_EQ(twelve.specs.size(), one.specs.size()) << Describe(one) << Describe(twelve);
    EXPECT_EQ(twelve.plan.steps.size(), 12 * one.plan.steps.size());
    EXPECT_EQ(twelve.coverage.reference_nodes, 0);
  }
}

// The recogniser at a second width and a third one.
TEST(SharedKernels, ANewWidthOfARealModelReusesMostKernels) {
  const auto path = SharedDirectory() / "models/ppocr/ch_PP-OCRv4_rec_infer.onnx";
  KILN_NEEDS_SHARED(path);
  const Result<ImportedModel> model = ImportOnnx(path);
  ASSERT_TRUE(model.has_value()) << ToString(model.error());
  std::set<std::vector<uint8_t>> known;
  for (const int64_t width : {320, 488, 152}) {
    size_t kernels = 0, reused = 0;
    for (const SegmentSite& site : FindSegments(model->program)) {
      const Result<Segment> segment = CanonicalSegment(model->program, site);
      ASSERT_TRUE(segment.has_value()) << ToString(segment.error());
      std::vector<int64_t> values;  // batch 1; the other symbol is the width
      for (size_t i = 0; i < segment->symbols.size(); ++i)
        values.push_back(i + 1 == segment->symbols.size() ? width : 1);
      for (const ir::KernelSpec& spec : Lowered(*segment, values, true).specs) {
        ++kernels;
        reused += known.insert(ir::EncodeSpec(spec)).second ? 0 : 1;
      }
    }
    std::cout << "width " << width << ": " << reused << " of " << kernels << " kernels were known\n";
    if (width == 320) continue;
    EXPECT_GE(reused * 10, kernels * 7) << "width " << width;
  }
}

}  // namespace
}  // namespace kiln::testing

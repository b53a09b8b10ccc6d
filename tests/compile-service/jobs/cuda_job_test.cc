// Compile requests for GPUs, with a real store, real children, and NVRTC or its double (tests/support/cuda).
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "common/artifact/kernel_blob.h"
#include "compile-service/codegen/cuda/nvrtc_build.h"
#include "compile-service/jobs/codegen_id_of.h"
#include "tests/compile-service/jobs/workshop_fixture.h"
#include "tests/support/cuda/nvrtc_double.h"
#include "tests/support/shared_material.h"
#include "vm-worker/onnx/importer.h"

namespace kiln {
namespace {

// The double runs the host's compiler, which a busy machine gives little time.
constexpr int64_t kCompilerMs = 200'000;

class CudaJobTest : public WorkshopTest {
 protected:
  void UseNvrtc(const std::string& path) {
    nvrtc_ = path;
    std::vector<std::string> arguments;
    if (!path.empty()) arguments = {kNvrtcArgument + path};
    compilers_ = ChildPool::Start({KILN_BIN_DIR "/kiln-compile-child", arguments, 1, kCompilerMs, {}, {}}).value();
  }
  Result<CompileOutcome> Compile(CompileRequest request) {
    UseValidator(KILN_BIN_DIR "/kiln-validate-child");
    CompileWorkshop workshop = Workshop();
    workshop.nvrtc = nvrtc_;
    CompileJob job(std::move(request), workshop, std::make_shared<JobControl>());
    ASSIGN_OR_RETURN(std::optional<CompileOutcome> outcome, job.Advance());
    if (!outcome) return Fail(ErrorCode::kBusy, "somebody else works on it");
    return *outcome;
  }
  static CompileRequest For(CompileRequest request, const std::string& target) {
    request.target = target;
    return request;
  }
  // The kernels of a published plan, as they are stored.
  std::vector<Bytes> Kernels(const PlanRecord& record) {
    std::vector<Bytes> blobs;
    for (const auto& kernel : record.kernels)
      blobs.push_back(client_->GetBlobsSync({kernel.id}, kWaitMs).value().at(0));
    return blobs;
  }
  // A plan for `target` of two products is published and says that nobody ran it.
  void ExpectPublished(const std::string& target) {
    const auto outcome = Compile(For(Product(PlanTier::kGeneric), target));
    ASSERT_TRUE(outcome.has_value()) << ToString(outcome.error());
    EXPECT_GT(outcome->reply.kernels_compiled, 0u);
    const PlanRecord record = Record(outcome->reply.plan_key);
    EXPECT_EQ(record.target, target);
    EXPECT_EQ(record.evidence.validation, ValidationKind::kNotExecuted);
    EXPECT_EQ(record.provenance.codegen_id, CodegenIdOf(*TargetFromName(target), nvrtc_).value());
    for (const Bytes& bytes : Kernels(record)) {
      const auto blob = ParseKernelBlob(bytes);
      ASSERT_TRUE(blob.has_value()) << ToString(blob.error());
      EXPECT_EQ(InfoOf(blob->target).name, target);
      EXPECT_TRUE(blob->launch.has_value());
    }
    // Once more: it is there, and nothing is compiled.
    const auto again = Compile(For(Product(PlanTier::kGeneric), target));
    ASSERT_TRUE(again.has_value()) << ToString(again.error());
    EXPECT_TRUE(again->reply.already_there);
  }
  // The first segment of a model under shared/models, at `size`.
  static Result<CompileRequest> OfModel(const std::string& path, int64_t size) {
    ASSIGN_OR_RETURN(const ImportedModel model, ImportOnnx(SharedDirectory() / "models" / path));
    ASSIGN_OR_RETURN(const Segment segment, CanonicalSegment(model.program, FindSegments(model.program).at(0)));
    CompileRequest request;
    ASSIGN_OR_RETURN(request.segment, EncodeSegment(segment));
    request.target = "sm_90";
    for (size_t s = 0; s < segment.symbols.size(); ++s) {
      const Symbol& symbol = segment.body.symbols.symbol(static_cast<SymbolId>(s));
      const bool given = segment.symbols[s].kind != SymbolSource::Kind::kValueDim;
      request.hints.push_back(given ? std::clamp(size, symbol.range.min, symbol.range.max) : -1);
    }
    return request;
  }
  void ExpectModelPublished(const std::string& path, int64_t size) {
    KILN_NEEDS_SHARED(SharedDirectory() / "models" / path);
    const auto request = OfModel(path, size);
    ASSERT_TRUE(request.has_value()) << ToString(request.error());
    const auto outcome = Compile(*request);
    ASSERT_TRUE(outcome.has_value()) << ToString(outcome.error());
    std::cout << path << ": " << outcome->reply.generated_nodes << " nodes in " << outcome->reply.kernels_compiled
              << " kernels, " << outcome->reply.compile_us / 1000 << " ms\n";
    EXPECT_EQ(outcome->reply.reference_nodes, 0u);
    const PlanRecord record = Record(outcome->reply.plan_key);
    EXPECT_EQ(record.evidence.validation, ValidationKind::kNotExecuted);
    for (const Bytes& bytes : Kernels(record)) EXPECT_EQ(ParseKernelBlob(bytes)->target, Target::kSm90);
  }
  std::string nvrtc_;
};

TEST_F(CudaJobTest, APlanIsPublishedByTheDouble) {
  UseNvrtc(testing::kNvrtcDouble);
  ExpectPublished("sm_90");
}

TEST_F(CudaJobTest, APlanIsPublishedByNvrtc) {
  const auto path = codegen::cuda::FindNvrtc("");
  if (!path.has_value()) GTEST_SKIP() << "no kernel was compiled: " << ToString(path.error());
  UseNvrtc(*path);
  for (const char* target : {"sm_80", "sm_90", "sm_100", "sm_120"}) ExpectPublished(target);
}

TEST_F(CudaJobTest, AConvolutionNetworkIsPublishedByTheDouble) {
  UseNvrtc(testing::kNvrtcDouble);
  ExpectModelPublished("mnist/opt-mnist.onnx", 1);
}

TEST_F(CudaJobTest, AMobileNetworkIsPublishedByNvrtc) {
  const auto path = codegen::cuda::FindNvrtc("");
  if (!path.has_value()) GTEST_SKIP() << "no kernel was compiled: " << ToString(path.error());
  UseNvrtc(*path);
  ExpectModelPublished("ppocr/ch_ppocr_mobile_v2.0_cls_infer.onnx", 48);
}

TEST_F(CudaJobTest, WithoutNvrtcRequestsForGpusAreRefusedAndOthersAreNot) {
  UseNvrtc("");
  const auto refused = Compile(For(Request(), "sm_90"));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message.find("--nvrtc"), std::string::npos) << refused.error().message;
  EXPECT_TRUE(Compile(Request()).has_value());
}

// A child's own word is not enough, of any kind of target.
TEST_F(CudaJobTest, AChildWithAnotherLibraryIsRefused) {
  UseNvrtc(testing::kNvrtcDouble);
  nvrtc_ = KILN_BIN_DIR "/kiln-compile-child";  // some other file
  const auto refused = Compile(For(Request(), "sm_90"));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kCompileFailed);
}

TEST_F(CudaJobTest, PlansForGpusAreNotTunedHere) {
  UseNvrtc(testing::kNvrtcDouble);
  const auto refused = Compile(For(Product(PlanTier::kTuned), "sm_90"));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kTargetMismatch);
}

// The same spec has another key for another target, another library and a processor.
TEST(CudaCodegenId, FollowsFromTargetAndLibrary) {
  const auto id = [](Target target, const std::string& nvrtc) { return CodegenIdOf(target, nvrtc).value(); };
  const std::string one = testing::kNvrtcDouble, other = KILN_BIN_DIR "/kiln-compile-child";
  EXPECT_EQ(id(Target::kSm90, one), id(Target::kSm90, one));
  EXPECT_NE(id(Target::kSm90, one), id(Target::kSm80, one));
  EXPECT_NE(id(Target::kSm90, one), id(Target::kSm90, other));
  EXPECT_NE(id(Target::kSm90, one), id(Target::kX86V3, one));
  EXPECT_EQ(id(Target::kX86V3, one), id(Target::kX86V3, ""));
  EXPECT_FALSE(CodegenIdOf(Target::kSm90, "").has_value());
  EXPECT_FALSE(CodegenIdOf(Target::kSm90, "/nonexistent").has_value());
}

}  // namespace
}  // namespace kiln

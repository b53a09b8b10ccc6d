// Kernels that fault: in the trials of a worker they cost a child process; where they were proven, the worker ends
// without another answer and does not meet them again.
#include <sys/wait.h>

#include "common/native/fault_handler.h"
#include "tests/end_to_end/fleet_fixture.h"
#include "tests/end_to_end/publish_plan.h"
#include "tests/vm-worker/dispatch/plan_fixture.h"

namespace kiln {
namespace {

#ifdef __x86_64__
using testing::Eventually;

constexpr const char* kRelu = R"(program "p" {
  symbol n in [0, 4096]
  func main(%x: f32[n, 4]) -> (%y) {
    %y : f32[n, 4] = Relu(%x)
  }
})";

// y = relu(x) over dims[0] rows of 4, an element at a time; beyond 100 rows the code is no instruction.
const std::vector<uint8_t> kFaultsBeyond100Rows = {
    0x48, 0x8b, 0x07,                          //       mov rax, [rdi]        pointers
    0x48, 0x8b, 0x4f, 0x08,                    //       mov rcx, [rdi + 8]    dims
    0x4c, 0x8b, 0x00,                          //       mov r8, [rax]         x
    0x4c, 0x8b, 0x48, 0x08,                    //       mov r9, [rax + 8]     y
    0x48, 0x8b, 0x09,                          //       mov rcx, [rcx]        rows
    0x48, 0xc1, 0xe1, 0x02,                    //       shl rcx, 2
    0x48, 0x81, 0xf9, 0x90, 0x01, 0x00, 0x00,  //       cmp rcx, 400
    0x77, 0x24,                                //       ja fault
    0x0f, 0x57, 0xc9,                          //       xorps xmm1, xmm1
    0x48, 0x85, 0xc9,                          // next: test rcx, rcx
    0x74, 0x1b,                                //       jz done
    0xf3, 0x41, 0x0f, 0x10, 0x00,              //       movss xmm0, [r8]
    0xf3, 0x0f, 0x5f, 0xc1,                    //       maxss xmm0, xmm1
    0xf3, 0x41, 0x0f, 0x11, 0x01,              //       movss [r9], xmm0
    0x49, 0x83, 0xc0, 0x04,                    //       add r8, 4
    0x49, 0x83, 0xc1, 0x04,                    //       add r9, 4
    0x48, 0xff, 0xc9,                          //       dec rcx
    0xeb, 0xe0,                                //       jmp next
    0xc3,                                      // done: ret
    0x0f, 0x0b,                                // fault: ud2
};
const std::vector<uint8_t> kFaultsAlways = {0x0f, 0x0b};

class KernelFault : public testing::FleetTest {
 protected:
  // Publishes a plan with this kernel; nothing replaces it.
  void Publish(const std::vector<uint8_t>& code) {
    fleet_->StopCompile();
    const Bytes blob = BuildKernelBlob(HostTargets().front(), 0, code);
    Plan plan = testing::ReluPlan(0, 4096);
    plan.kernels = {KernelIdOf(blob)};
    plan.steps = {{KernelStep{0, {0, 1}, {plan.symbols.SymbolDim(0)}, Dim::Const(1), Dim::Const(1), Dim::Const(0)},
                   {0},
                   "kernel"}};
    key_ = ComputePlanKey(plan);
    testing::PublishPlan(*loop_, *fleet_, plan, {blob});
    std::ofstream(directory_ + "/relu.kiln") << kRelu;
  }
  RpcClient* Worker(const std::string& disk) {
    return StartWorker({"--model", "m=" + directory_ + "/relu.kiln", "--disk-cache", directory_ + "/" + disk});
  }
  // Whether it was answered; a wrong answer is counted.
  bool Ask(RpcClient& worker, int64_t rows, bool* by_plan = nullptr) {
    Tensor x = Tensor::Allocate(DType::kF32, {rows, 4});
    for (int64_t i = 0; i < rows * 4; ++i) x.ref.as<float>()[i] = static_cast<float>(i % 5) - 2;
    const auto reply = CallRun(worker, {"m", {{"x", x}}}, 20'000);
    if (!reply.has_value()) return false;
    for (int64_t i = 0; i < rows * 4; ++i)
      if (reply->outputs.at(0).tensor.ref.as<float>()[i] != std::max(0.0f, x.ref.as<float>()[i])) {
        ++wrong_answers_;
        break;
      }
    if (by_plan != nullptr) *by_plan = reply->timing.plan_segments > 0;
    return true;
  }
  PlanKey key_;
  int wrong_answers_ = 0;
};

TEST_F(KernelFault, InItsTrialsCostsNoWorkerAndTheFleetHidesIt) {
  Publish(kFaultsAlways);
  RpcClient* worker = Worker("disk-a");
  EXPECT_TRUE(Eventually([&] {
    EXPECT_TRUE(Ask(*worker, 7));
    return CallStats(*worker, {}, 5'000)->Value("shadow_faults") > 0;
  }));
  for (int64_t rows = 1; rows < 20; ++rows) {
    bool by_plan = true;
    EXPECT_TRUE(Ask(*worker, rows, &by_plan));
    EXPECT_FALSE(by_plan);
  }
  EXPECT_EQ(fleet_->FirstEndedWorker(), "");
  // On a plaintext fleet of one machine a worker's report is enough.
  RpcClient* second = Worker("disk-b");
  for (int64_t rows = 1; rows < 20; ++rows) EXPECT_TRUE(Ask(*second, rows));
  EXPECT_EQ(CallStats(*second, {}, 5'000)->Value("fetched"), 0u) << "the first has reported it";
  EXPECT_EQ(wrong_answers_, 0);
}

TEST_F(KernelFault, OfAProvenPlanEndsTheWorkerWhichThenLivesWithoutThePlan) {
  Publish(kFaultsBeyond100Rows);
  RpcClient* worker = Worker("disk");
  ASSERT_TRUE(Eventually([&] {
    bool by_plan = false;
    EXPECT_TRUE(Ask(*worker, 10, &by_plan));
    return by_plan;
  })) << "small calls prove it";
  EXPECT_FALSE(Ask(*worker, 200)) << "no answer follows the fault";
  siginfo_t end{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(fleet_->worker(0).pid()), &end, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(end.si_code, CLD_EXITED);
  EXPECT_EQ(end.si_status, kKernelFaultExit);
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/disk/" + key_.Hex() + kFaultSuffix));

  RpcClient* restarted = Worker("disk");
  for (int64_t rows : {200, 10, 300, 101}) {
    bool by_plan = true;
    EXPECT_TRUE(Ask(*restarted, rows, &by_plan));
    EXPECT_FALSE(by_plan);
  }
  EXPECT_TRUE(Eventually([&] { return !std::filesystem::exists(directory_ + "/disk/" + key_.Hex() + kFaultSuffix); }))
      << "the store was told";
  EXPECT_EQ(wrong_answers_, 0);
}
#endif

}  // namespace
}  // namespace kiln

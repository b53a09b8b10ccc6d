// Models with state, over a real worker: the state stays there between runs, bounded, and its loss is answered.
#include <cstdio>
#include <fstream>

#include "common/telemetry/metrics.h"
#include "schemas/onnx.pb.h"
#include "tests/end_to_end/fleet_fixture.h"
#include "tests/support/scrape.h"

namespace kiln {
namespace {

constexpr int64_t kDeadlineMs = 20'000;

void AddValue(onnx::ValueInfoProto& value, const std::string& name, const std::string& rows) {
  value.set_name(name);
  auto& tensor = *value.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(1);
  if (rows.empty())
    tensor.mutable_shape()->add_dim()->set_dim_value(1);
  else
    tensor.mutable_shape()->add_dim()->set_dim_param(rows);
  tensor.mutable_shape()->add_dim()->set_dim_value(4);
}

// y = total = x + sum, cache_out = cache rows, then x: a sum of constant shape, and a cache that grows.
std::string StatefulModel() {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  onnx::GraphProto& graph = *model.mutable_graph();
  graph.set_name("stateful");
  const auto node = [&graph](const std::string& op, std::vector<std::string> inputs, const std::string& output) {
    onnx::NodeProto& added = *graph.add_node();
    added.set_op_type(op);
    for (const std::string& input : inputs) added.add_input(input);
    added.add_output(output);
    return &added;
  };
  node("Add", {"x", "sum"}, "total");
  node("Identity", {"total"}, "y");
  auto& axis = *node("Concat", {"cache", "x"}, "cache_out")->add_attribute();
  axis.set_name("axis");
  axis.set_type(2);
  axis.set_i(0);
  AddValue(*graph.add_input(), "x", "");
  AddValue(*graph.add_input(), "sum", "");
  AddValue(*graph.add_input(), "cache", "past");
  AddValue(*graph.add_output(), "y", "");
  AddValue(*graph.add_output(), "total", "");
  AddValue(*graph.add_output(), "cache_out", "all");
  return model.SerializeAsString();
}

class Streams : public testing::FleetTest {
 protected:
  void SetUp() override {
    FleetTest::SetUp();
    std::ofstream(directory_ + "/stateful.onnx", std::ios::binary) << StatefulModel();
  }
  RpcClient* Start(std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--model", "m=" + directory_ + "/stateful.onnx"});
    return StartWorker(std::move(more));
  }
  static Tensor Row(float value) {
    const std::vector<float> values(4, value);
    return Tensor::Of<float>(DType::kF32, {1, 4}, values);
  }
  static OpenStreamRequest Both() {
    return {"m", {{"sum", "total"}, {"cache", "cache_out"}}, {{"cache", Tensor::Allocate(DType::kF32, {0, 4})}}};
  }
  static OpenStreamRequest OnlySum() { return {"m", {{"sum", "total"}}, {}}; }
  static Result<RunReply> Run(RpcClient& worker, uint64_t stream, float x) {
    return CallRun(worker, {"m", {{"x", Row(x)}}, stream}, kDeadlineMs);
  }
};

TEST_F(Streams, StateStaysWithTheWorkerAndIsNotSentBack) {
  RpcClient* worker = Start();
  const auto first = CallOpenStream(*worker, Both(), kDeadlineMs),
             second = CallOpenStream(*worker, Both(), kDeadlineMs);
  ASSERT_TRUE(first.has_value()) << ToString(first.error());
  ASSERT_TRUE(second.has_value());
  EXPECT_NE(first->stream, second->stream);
  for (uint64_t run = 1; run <= 8; ++run) {
    const auto a = Run(*worker, first->stream, 1), b = Run(*worker, second->stream, 10);
    ASSERT_TRUE(a.has_value()) << ToString(a.error());
    ASSERT_TRUE(b.has_value());
    ASSERT_EQ(a->outputs.size(), 1u);
    EXPECT_EQ(a->outputs[0].name, "y");
    EXPECT_EQ(a->outputs[0].tensor.values<float>()[3], static_cast<float>(run));
    EXPECT_EQ(b->outputs[0].tensor.values<float>()[0], static_cast<float>(10 * run));
    EXPECT_EQ(a->stream_runs, run);
  }
  EXPECT_EQ(CallStats(*worker, {}, kDeadlineMs)->Value("stream_bytes"), 2u * (16 + 8 * 16));
  EXPECT_TRUE(CallCloseStream(*worker, {first->stream}, kDeadlineMs).has_value());
  EXPECT_EQ(CallStats(*worker, {}, kDeadlineMs)->Value("streams"), 1u);
}

TEST_F(Streams, OfAnotherProcessOrClosedOrOfAModelLoadedAgainAreLost) {
  RpcClient* worker = Start();
  const uint64_t stream = CallOpenStream(*worker, Both(), kDeadlineMs)->stream;
  ASSERT_TRUE(Run(*worker, stream, 1).has_value());
  ASSERT_TRUE(CallUnload(*worker, {"m"}, kDeadlineMs).has_value());
  ASSERT_TRUE(CallLoad(*worker, {"m", directory_ + "/stateful.onnx"}, kDeadlineMs).has_value());
  auto lost = Run(*worker, stream, 1);
  ASSERT_FALSE(lost.has_value());
  EXPECT_EQ(lost.error().code, ErrorCode::kStateLost) << ToString(lost.error());

  const uint64_t again = CallOpenStream(*worker, Both(), kDeadlineMs)->stream;
  ASSERT_TRUE(Run(*worker, again, 1).has_value());
  const uint64_t closed = CallOpenStream(*worker, Both(), kDeadlineMs)->stream;
  ASSERT_TRUE(CallCloseStream(*worker, {closed}, kDeadlineMs).has_value());
  lost = Run(*worker, closed, 1);
  ASSERT_FALSE(lost.has_value());
  EXPECT_EQ(lost.error().code, ErrorCode::kStateLost) << ToString(lost.error());
  EXPECT_EQ(CallStats(*worker, {}, kDeadlineMs)->Value("streams_lost"), 2u);
  fleet_->StopWorker(0);
  RpcClient* restarted = Start();
  lost = Run(*restarted, again, 1);
  ASSERT_FALSE(lost.has_value());
  EXPECT_EQ(lost.error().code, ErrorCode::kStateLost) << ToString(lost.error());
  EXPECT_EQ(CallStats(*restarted, {}, kDeadlineMs)->Value("streams_lost"), 1u);
}

// A client from before the error code finds the flag, and a worker from before it sends one.
TEST_F(Streams, LossIsToldByAFlagToACallerThatDoesNotKnowTheError) {
  RpcClient* worker = Start();
  RunRequest request{"m", {{"x", Row(1)}}, 12345};
  request.knows_state_lost = false;
  const auto raw = worker->CallSync(static_cast<uint16_t>(WorkerMethod::kRun), Encode(request), kDeadlineMs);
  ASSERT_TRUE(raw.has_value()) << ToString(raw.error());
  RunReply reply;
  ASSERT_TRUE(Decode(raw->message, reply).has_value());
  EXPECT_TRUE(reply.state_lost);
  EXPECT_TRUE(reply.outputs.empty());
  EXPECT_EQ(CallRun(*worker, request, kDeadlineMs).error().code, ErrorCode::kStateLost);
}

TEST_F(Streams, AreBoundedAndExpire) {
  RpcClient* worker = Start({"--streams", "2", "--stream-bytes", "64", "--stream-idle-s", "1"});
  const auto first = CallOpenStream(*worker, OnlySum(), kDeadlineMs);
  ASSERT_TRUE(first.has_value()) << ToString(first.error());
  EXPECT_EQ(first->idle_ms, 1000u);
  const uint64_t growing = CallOpenStream(*worker, Both(), kDeadlineMs)->stream;
  EXPECT_EQ(CallOpenStream(*worker, OnlySum(), kDeadlineMs).error().code, ErrorCode::kResourceExhausted);
  ASSERT_TRUE(Run(*worker, growing, 1).has_value());
  ASSERT_TRUE(Run(*worker, growing, 1).has_value());
  EXPECT_EQ(Run(*worker, growing, 1).error().code, ErrorCode::kResourceExhausted) << "16 + 16 + 3 * 16 bytes";
  EXPECT_EQ(Run(*worker, growing, 1).error().code, ErrorCode::kResourceExhausted) << "the stream is as it was";
  EXPECT_TRUE(testing::Eventually([&] { return CallStats(*worker, {}, kDeadlineMs)->Value("streams") == 0; }));
  const auto lost = Run(*worker, first->stream, 1);
  ASSERT_FALSE(lost.has_value());
  EXPECT_EQ(lost.error().code, ErrorCode::kStateLost) << ToString(lost.error());
  EXPECT_TRUE(CallOpenStream(*worker, OnlySum(), kDeadlineMs).has_value());
}

// Every row of the worker's table, from a worker that runs.
TEST_F(Streams, AndEverythingElseAWorkerCountsAreAmongItsMetrics) {
  const std::string address = testing::FreeAddress();
  RpcClient* worker = Start({"--metrics", address});
  const uint64_t stream = CallOpenStream(*worker, OnlySum(), kDeadlineMs)->stream;
  const std::vector<NamedTensor> inputs = {{"x", Row(1)}, {"cache", Row(2)}};
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(CallRun(*worker, {"m", inputs, stream}, kDeadlineMs).has_value());
  ASSERT_FALSE(CallRun(*worker, {"m", inputs, stream + 1}, kDeadlineMs).has_value());
  const std::string page = testing::Scrape(address);
  for (const std::string line : {"kiln_worker_requests_total 5", "kiln_worker_streams 1",
                                 "kiln_worker_streams_lost_total 1", "kiln_worker_run_seconds_count 4"})
    EXPECT_NE(page.find(line + "\n"), std::string::npos) << line << "\n" << page;
  for (const MetricInfo& info : Metrics()) {
    if (info.service != MetricService::kWorker) continue;
    const std::string name(info.name);
    EXPECT_TRUE(page.find("\n" + name + " ") != std::string::npos ||
                page.find("\n" + name + "{") != std::string::npos ||
                page.find("\n" + name + "_count ") != std::string::npos)
        << name << " has a row and no value";
  }
}

TEST_F(Streams, KilnRunIsAClientThatChecksThem) {
  ASSERT_NE(Start(), nullptr);
  const std::string command = KILN_BIN_DIR "/kiln run " + directory_ + "/stateful.onnx --name m --worker " +
                              fleet_->WorkerEndpoint(0) +
                              " --stream sum=total --stream cache=cache_out --dim cache.0=0 --repeat 20 --check --json";
  FILE* pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string output;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) output.push_back(static_cast<char>(c));
  EXPECT_EQ(::pclose(pipe), 0);
  EXPECT_NE(output.find("\"failed\":0"), std::string::npos) << output;
  EXPECT_NE(output.find("\"runs\":20"), std::string::npos) << output;
  EXPECT_NE(output.find("\"wrong\":0"), std::string::npos) << output;
}

TEST_F(Streams, MistakesAreNamed) {
  RpcClient* worker = Start({"--state", "m:sum=total"});
  const auto by_flag = CallOpenStream(*worker, {"m", {}, {}}, kDeadlineMs);
  ASSERT_TRUE(by_flag.has_value()) << ToString(by_flag.error());
  const auto error = [&](const OpenStreamRequest& request) {
    const auto reply = CallOpenStream(*worker, request, kDeadlineMs);
    return reply.has_value() ? std::string() : reply.error().message;
  };
  EXPECT_NE(error({"m", {{"summ", "total"}}, {}}).find("\"summ\" is no input"), std::string::npos);
  EXPECT_NE(error({"m", {{"sum", "totall"}}, {}}).find("\"totall\" is no output"), std::string::npos);
  EXPECT_NE(error({"m", {{"sum", "total"}, {"sum", "y"}}, {}}).find("twice"), std::string::npos);
  EXPECT_NE(error({"m", {{"cache", "cache_out"}}, {}}).find("send the tensor"), std::string::npos);
  EXPECT_NE(error({"m", {{"sum", "total"}}, {{"sum", Tensor::Zeros(DType::kF32, {2, 4})}}}).find("declares"),
            std::string::npos);
  const auto twice = CallRun(*worker, {"m", {{"x", Row(1)}, {"sum", Row(1)}}, by_flag->stream}, kDeadlineMs);
  ASSERT_FALSE(twice.has_value());
  EXPECT_NE(twice.error().message.find("is the stream's state"), std::string::npos) << twice.error().message;
}

}  // namespace
}  // namespace kiln

// A lookup in a real worker: the plan answers indices of the table, and those outside of it get the interpreter's error
// for as long as anybody sends them, without a word against the plan.
#include <fstream>

#include "common/artifact/target.h"
#include "schemas/onnx.pb.h"
#include "tests/end_to_end/fleet_fixture.h"

namespace kiln {
namespace {

using testing::Eventually;

constexpr int64_t kRows = 16, kColumns = 5;

// y = relu(table[ids]).
std::string WriteModel(const std::string& directory) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  onnx::GraphProto& graph = *model.mutable_graph();
  graph.set_name("lookup");
  onnx::TensorProto& table = *graph.add_initializer();
  table.set_name("table");
  table.set_data_type(1);
  table.add_dims(kRows);
  table.add_dims(kColumns);
  for (int64_t i = 0; i < kRows * kColumns; ++i) table.add_float_data(static_cast<float>(i - 30));
  const auto node = [&](const char* op, std::vector<std::string> inputs, const char* output) {
    onnx::NodeProto& made = *graph.add_node();
    made.set_op_type(op);
    made.set_name(std::string("the_") + op);
    for (const std::string& input : inputs) made.add_input(input);
    made.add_output(output);
  };
  node("Gather", {"table", "ids"}, "rows");
  node("Relu", {"rows"}, "y");
  const auto value = [](onnx::ValueInfoProto& info, const char* name, int type) {
    info.set_name(name);
    auto& tensor = *info.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(type);
    tensor.mutable_shape()->add_dim()->set_dim_param("n");
  };
  value(*graph.add_input(), "ids", 7);
  value(*graph.add_output(), "y", 1);
  graph.mutable_output(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(kColumns);
  const std::string path = directory + "/lookup.onnx";
  std::ofstream(path, std::ios::binary) << model.SerializeAsString();
  return path;
}

class LookupTest : public testing::FleetTest {
 protected:
  static auto Run(RpcClient& worker, const std::vector<int64_t>& ids) {
    const auto n = static_cast<int64_t>(ids.size());
    return CallRun(worker, {"m", {{"ids", Tensor::Of<int64_t>(DType::kI64, {n}, ids)}}}, 10'000);
  }
  // Whether a plan answered.
  static bool Ask(RpcClient& worker, const std::vector<int64_t>& ids) {
    const auto reply = Run(worker, ids);
    EXPECT_TRUE(reply.has_value()) << ToString(reply.error());
    if (!reply.has_value()) return false;
    const std::span<const float> y = reply->outputs.at(0).tensor.values<float>();
    for (size_t i = 0; i < y.size(); ++i) {
      const int64_t id = ids[i / kColumns], row = id < 0 ? id + kRows : id;
      const auto entry = static_cast<float>(row * kColumns + static_cast<int64_t>(i % kColumns) - 30);
      EXPECT_EQ(y[i], std::max(entry, 0.0f)) << "element " << i;
    }
    return reply->timing.plan_segments > 0;
  }
};

TEST_F(LookupTest, BadIndicesKeepTheirErrorAndThePlan) {
  if (HostTargets().empty()) GTEST_SKIP() << "no kernels are made for this processor";
  std::filesystem::create_directories(directory_);
  RpcClient* worker = StartWorker({"--model", "m=" + WriteModel(directory_)});
  const auto interpreted = Run(*worker, {3, kRows});
  ASSERT_FALSE(interpreted.has_value());
  EXPECT_EQ(interpreted.error().code, ErrorCode::kOutOfRange);
  EXPECT_NE(interpreted.error().message.find("index 16 is outside axis 0"), std::string::npos);

  ASSERT_TRUE(Eventually([&] {
    Ask(*worker, {-kRows, 0, kRows - 1});
    return Ask(*worker, {1, -1, 7});
  }));
  for (int i = 0; i < 200; ++i) {
    const auto refused = Run(*worker, {3, kRows});
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, interpreted.error().code);
    EXPECT_EQ(refused.error().message, interpreted.error().message);
    EXPECT_TRUE(Ask(*worker, {2, -3, i % kRows})) << "the plan is still there";
  }
  const auto stats = CallStats(*worker, {}, 5'000);
  ASSERT_TRUE(stats.has_value());
  EXPECT_EQ(stats->Value("quarantined"), 0u);
  EXPECT_EQ(stats->Value("shadow_mismatches"), 0u);
}

}  // namespace
}  // namespace kiln

// Operators of users: a library built from the installed header, in a model, in this process and in a worker.
#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/ops/user_ops.h"
#include "common/tensor/dtype.h"
#include "schemas/onnx.pb.h"
#include "tests/end_to_end/fleet_fixture.h"
#include "vm-worker/plugin/load_plugin.h"

namespace kiln {
namespace {

using ::testing::HasSubstr;

// Installs the header and compiles the sample against it, once; with `flags`, another library of it.
std::string BuildSample(const std::string& name, const std::string& flags = "") {
  static const testing::TempDirectory sdk;
  static const std::string directory = [] {
    const std::string install =
        "cmake --install " KILN_BINARY_DIR " --component plugin --prefix " + sdk.path() + " >/dev/null";
    EXPECT_EQ(std::system(install.c_str()), 0);
    return sdk.path();
  }();
  const std::string library = directory + "/" + name + ".so";
  const std::string compile = "cc -std=c99 -Wall -Wextra -Werror -shared -fPIC -I" + directory + "/include " + flags +
                              " -o " + library + " " KILN_SOURCE_DIR "/tests/vm-worker/plugin/sample_plugin.c";
  EXPECT_EQ(std::system(compile.c_str()), 0) << compile;
  return library;
}

onnx::NodeProto& AddNode(onnx::GraphProto& graph, const std::string& domain, const std::string& op,
                         const std::string& input, const std::vector<std::string>& outputs) {
  onnx::NodeProto& node = *graph.add_node();
  node.set_domain(domain);
  node.set_op_type(op);
  node.set_name(op + "_of_" + input);
  node.add_input(input);
  for (const std::string& output : outputs) node.add_output(output);
  return node;
}

void AddValue(onnx::ValueInfoProto& value, const std::string& name, bool with_shape) {
  value.set_name(name);
  auto& tensor = *value.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(1);
  if (!with_shape) return;
  tensor.mutable_shape()->add_dim()->set_dim_param("n");
  tensor.mutable_shape()->add_dim()->set_dim_value(4);
}

void AddAttribute(onnx::NodeProto& node, const std::string& name, float value) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(1);
  attribute.set_f(value);
}

// y = neg(op(relu(x))), with the attributes that Scale takes when it is Scale.
std::string ModelAround(const std::string& op, int outputs = 1) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  onnx::GraphProto& graph = *model.mutable_graph();
  graph.set_name("with_plugin");
  AddNode(graph, "", "Relu", "x", {"positive"});
  std::vector<std::string> names = {"mine"};
  if (outputs > 1) names.push_back("count");
  onnx::NodeProto& mine = AddNode(graph, "example", op, "positive", names);
  AddNode(graph, "", "Neg", "mine", {"y"});
  if (op == "Scale") {
    AddAttribute(mine, "factor", 0.5f);
    onnx::AttributeProto& offsets = *mine.add_attribute();
    offsets.set_name("offsets");
    offsets.set_type(7);
    for (int64_t value : {1, -3, 4}) offsets.add_ints(value);
    onnx::AttributeProto& mode = *mine.add_attribute();
    mode.set_name("mode");
    mode.set_type(3);
    mode.set_s("plain scale");
  }
  AddValue(*graph.add_input(), "x", true);
  AddValue(*graph.add_output(), "y", false);
  if (outputs > 1) {
    AddValue(*graph.add_output(), "count", false);
    graph.mutable_output(1)->mutable_type()->mutable_tensor_type()->set_elem_type(7);
  }
  return model.SerializeAsString();
}

Result<std::shared_ptr<const LoadedProgram>> Load(const std::string& bytes) {
  ASSIGN_OR_RETURN(ImportedModel imported,
                   ImportOnnxBytes({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "with_plugin"));
  return LoadedProgram::Load(std::move(imported.program));
}

Tensor Ramp(int64_t rows) {
  Tensor x = Tensor::Allocate(DType::kF32, {rows, 4});
  for (int64_t i = 0; i < rows * 4; ++i) x.ref.as<float>()[i] = static_cast<float>(i % 7) - 3.0f;
  return x;
}

class PluginTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    // What a model says while nothing is loaded comes first: a plug-in stays for the life of the process.
    const auto without = Load(ModelAround("Scale"));
    ASSERT_FALSE(without.has_value());
    EXPECT_EQ(without.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(without.error().message, HasSubstr("--plugin"));
    const Status loaded = LoadPlugin(BuildSample("sample"));
    ASSERT_TRUE(loaded.has_value()) << ToString(loaded.error());
  }
  Error RunFails(const std::string& op) {
    const auto program = Load(ModelAround(op));
    if (!program.has_value()) return program.error();
    VmContext context;
    const Tensor x = Ramp(2);
    const auto outputs = context.Run(**program, {&x.ref, 1});
    EXPECT_FALSE(outputs.has_value());
    const Tensor good = Ramp(1);
    const auto scale = Load(ModelAround("Scale"));
    EXPECT_TRUE(scale.has_value() && context.Run(**scale, {&good.ref, 1}).has_value()) << "the context is as usable";
    return outputs.has_value() ? Error{} : outputs.error();
  }
};

TEST_F(PluginTest, ANodeOfItsDomainRunsItAndSegmentsEndThere) {
  const auto program = Load(ModelAround("Scale"));
  ASSERT_TRUE(program.has_value()) << ToString(program.error());
  ASSERT_EQ((*program)->sites().size(), 2u);
  EXPECT_EQ((*program)->sites()[0].end_reason, SegmentEnd::kUserKernel);
  VmContext context;
  for (const int64_t rows : {3, 0, 1, 3, 100}) {
    const Tensor x = Ramp(rows);
    const auto outputs = context.Run(**program, {&x.ref, 1});
    ASSERT_TRUE(outputs.has_value()) << ToString(outputs.error());
    const TensorRef& y = outputs->at(0).ref;
    ASSERT_EQ(y.dims, (Dims{rows, 4}));
    for (int64_t i = 0; i < rows * 4; ++i)
      EXPECT_EQ(y.as<float>()[i], -(std::max(x.ref.as<float>()[i], 0.0f) * 0.5f + 2)) << i;
  }
}

TEST_F(PluginTest, ItsOutputsMayHaveSizesThatOnlyTheContentsTell) {
  const auto program = Load(ModelAround("KeepPositive", 2));
  ASSERT_TRUE(program.has_value()) << ToString(program.error());
  VmContext context;
  const Tensor x = Ramp(5);  // 20 values of -3 … 3
  const auto outputs = context.Run(**program, {&x.ref, 1});
  ASSERT_TRUE(outputs.has_value()) << ToString(outputs.error());
  int64_t positive = 0;
  for (int64_t i = 0; i < 20; ++i) positive += x.ref.as<float>()[i] > 0;
  EXPECT_EQ(outputs->at(0).ref.dims, Dims{positive});
  EXPECT_EQ(*outputs->at(1).ref.as<int64_t>(), positive);
  EXPECT_EQ(outputs->at(0).ref.as<float>()[0], -1);
}

TEST_F(PluginTest, ShapesThatCannotBeAreErrorsThatNameTheOperator) {
  for (const char* op : {"WrongShape", "NegativeDim"}) {
    const Error error = RunFails(op);
    EXPECT_EQ(error.code, ErrorCode::kShapeMismatch) << error.message;
    EXPECT_THAT(error.message, HasSubstr(std::string("example.") + op));
  }
  EXPECT_EQ(RunFails("HugeDim").code, ErrorCode::kLimitExceeded);
}

TEST_F(PluginTest, ItsOwnErrorsReachTheCaller) {
  std::string bytes = ModelAround("Scale");
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(bytes));
  model.mutable_graph()->mutable_node(1)->clear_attribute();
  const auto program = Load(model.SerializeAsString());
  ASSERT_TRUE(program.has_value()) << ToString(program.error());
  VmContext context;
  const Tensor x = Ramp(2);
  const auto outputs = context.Run(**program, {&x.ref, 1});
  ASSERT_FALSE(outputs.has_value());
  EXPECT_THAT(outputs.error().message, HasSubstr("factor and mode are needed"));
}

// A program may be older than the plug-in that is loaded: types that it was not verified with never reach its values.
TEST_F(PluginTest, AProgramThatSaysOtherTypesThanThePluginIsRefused) {
  for (const char* attributes : {"output_dtypes = [7], output_ranks = [-1]", "output_dtypes = [-1], output_ranks = [1]",
                                 "output_dtypes = [-1, -1], output_ranks = [-1, -1]"}) {
    auto program =
        ParseProgram(std::string(R"(program "p" {
      symbol n in [0, 4096] symbol a in [0, 4096] symbol b in [0, 4096]
      func main(%x: f32[n, 4]) -> (%y) {
        %y : )") +
                     (std::string_view(attributes).starts_with("output_dtypes = [7]")              ? "i64[a, b]"
                      : std::string_view(attributes).find("ranks = [1]") != std::string_view::npos ? "f32[a]"
                                                                                                   : "f32[a, b]") +
                     R"( = CallFunc(%x) {arguments = ["factor f 0x1p-1", "mode s plain scale"], domain = "example", )" +
                     attributes + R"(, type = "Scale"}
      } })");
    ASSERT_TRUE(program.has_value()) << ToString(program.error());
    const auto loaded = LoadedProgram::Load(std::move(*program));
    ASSERT_TRUE(loaded.has_value()) << ToString(loaded.error());
    VmContext context;
    const Tensor x = Ramp(2);
    const auto outputs = context.Run(**loaded, {&x.ref, 1});
    ASSERT_FALSE(outputs.has_value()) << attributes;
    EXPECT_THAT(outputs.error().message, HasSubstr("another version"));
  }
}

TEST_F(PluginTest, LibrariesThatAreNoPluginAreRefused) {
  EXPECT_EQ(LoadPlugin("/nowhere/ops.so").error().code, ErrorCode::kNotFound);
  const Status other = LoadPlugin(BuildSample("other_abi", "-DSAMPLE_ABI=2"));
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(other.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(other.error().message, HasSubstr("version 2"));
  const Status twice = LoadPlugin(BuildSample("copy"));
  ASSERT_FALSE(twice.has_value());
  EXPECT_EQ(twice.error().code, ErrorCode::kAlreadyExists);
  const testing::TempDirectory temporary;
  const std::string text = temporary.path() + "/no-library";
  std::ofstream(text) << "this is no library";
  EXPECT_EQ(LoadPlugin(text).error().code, ErrorCode::kNotFound);
}

TEST(UserOps, DeclarationsThatCannotBeAreRefused) {
  const KilnPluginFunction function = [](KilnPluginCall*) { return 0; };
  const KilnPluginOutput good_output[] = {{KILN_F32, 1}}, bad_type[] = {{8, 1}}, bad_rank[] = {{KILN_F32, 9}},
                         no_input[] = {{KILN_OF_INPUT(1), 1}};
  const auto refused = [&](KilnPluginOp op) {
    const KilnPlugin plugin{KILN_PLUGIN_ABI, "p", &op, 1};
    return !RegisterPlugin(plugin, "p.so").has_value();
  };
  const KilnPluginOp good{"checks", "Op", 1, 1, 1, good_output, 1, function, function};
  KilnPluginOp op = good;
  op.domain = "";
  EXPECT_TRUE(refused(op));
  op.domain = "ai.onnx";
  EXPECT_TRUE(refused(op));
  op = good;
  op.inputs_min = 0;
  EXPECT_TRUE(refused(op));
  op = good;
  op.compute = nullptr;
  EXPECT_TRUE(refused(op));
  for (const KilnPluginOutput* output : {bad_type, bad_rank, no_input}) {
    op = good;
    op.outputs = output;
    EXPECT_TRUE(refused(op));
  }
  EXPECT_EQ(FindUserOp("checks", "Op"), nullptr);
  EXPECT_FALSE(refused(good));
  ASSERT_NE(FindUserOp("checks", "Op"), nullptr);
  EXPECT_EQ(FindUserOp("checks", "Op")->plugin, "p");
}

// The header repeats the dtypes for people who have nothing else of ours.
TEST(UserOps, TheHeadersDtypesAreOurs) {
  const std::pair<DType, int> pairs[] = {{DType::kF32, KILN_F32},  {DType::kU8, KILN_U8},     {DType::kI8, KILN_I8},
                                         {DType::kU16, KILN_U16},  {DType::kI16, KILN_I16},   {DType::kI32, KILN_I32},
                                         {DType::kI64, KILN_I64},  {DType::kBool, KILN_BOOL}, {DType::kF16, KILN_F16},
                                         {DType::kF64, KILN_F64},  {DType::kU32, KILN_U32},   {DType::kU64, KILN_U64},
                                         {DType::kBF16, KILN_BF16}};
  for (const auto& [ours, theirs] : pairs) EXPECT_EQ(static_cast<int>(ours), theirs);
  EXPECT_EQ(limits::kRankMax, KILN_PLUGIN_RANK_MAX);
}

class PluginWorkerTest : public testing::FleetTest {};

TEST_F(PluginWorkerTest, AWorkerRunsItBetweenPlans) {
  const std::string library = BuildSample("sample_for_worker");
  const std::string path = directory_ + "/model.onnx";
  std::ofstream(path, std::ios::binary) << ModelAround("Scale");
  RpcClient* worker = StartWorker({"--plugin", library, "--model", "m=" + path});
  ASSERT_NE(worker, nullptr);
  bool by_plans = false;
  for (int64_t i = 0; i < 400 && !by_plans; ++i) {
    const int64_t rows = 1 + i % 5;
    const Tensor x = Ramp(rows);
    const auto reply = CallRun(*worker, {"m", {{"x", x}}}, 10'000);
    ASSERT_TRUE(reply.has_value()) << ToString(reply.error());
    for (int64_t k = 0; k < rows * 4; ++k)
      ASSERT_EQ(reply->outputs.at(0).tensor.ref.as<float>()[k], -(std::max(x.ref.as<float>()[k], 0.0f) * 0.5f + 2));
    by_plans = reply->timing.plan_segments == 2;
    if (!by_plans) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_TRUE(by_plans) << "both sides of the call are compiled";
}

}  // namespace
}  // namespace kiln

// Damaged models: each is refused with a message, or is by chance a model; none crashes, hangs or allocates without
// bound.
#include <gtest/gtest.h>

#include <random>

#include "tests/vm-worker/onnx/model_builder.h"
#include "vm-worker/onnx/tensor_proto.h"

namespace kiln::onnx {
namespace {

// Initialisers of several kinds, an If, a Loop, a function, shape arithmetic.
std::string RichModel() {
  TestModel model(13);
  FunctionProto& function = *model.proto().add_functions();
  function.set_name("Twice");
  function.set_domain("local");
  function.add_input("v");
  function.add_output("r");
  AddNode(*function.mutable_node(), "Add", {"v", "v"}, {"r"});
  GraphProto then_branch;
  AddNode(*then_branch.mutable_node(), "Relu", {"x"}, {"t"});
  then_branch.add_output()->set_name("t");
  GraphProto else_branch;
  AddNode(*else_branch.mutable_node(), "Neg", {"x"}, {"e"});
  else_branch.add_output()->set_name("e");
  GraphProto body;
  *body.add_input() = Tensor32("i", {}, 7);
  *body.add_input() = Tensor32("keep", {}, 9);
  body.add_input()->set_name("s");
  AddNode(*body.mutable_node(), "Twice", {"s"}, {"s2"}, {}, "local");
  body.add_output()->set_name("keep");
  body.add_output()->set_name("s2");

  model.Input(Tensor32("x", {"n", 4})).Input(Tensor32("c", {}, 9)).Input(Tensor32("trips", {}, 7));
  model.Initializer(FloatTensor("w", {4, 4}, std::vector<float>(16, 0.5f)));
  model.Initializer(IntTensor("target", {2}, {-1, 2}));
  model.Node("If", {"c"}, {"a"},
             {GraphAttribute("then_branch", then_branch), GraphAttribute("else_branch", else_branch)});
  model.Node("Loop", {"trips", "", "a"}, {"b"}, {GraphAttribute("body", body)});
  model.Node("MatMul", {"b", "w"}, {"d"}).Node("Reshape", {"d", "target"}, {"y"});
  model.Node("Conv", {"image", "kernel"}, {"z"},
             {IntsAttribute("pads", {1, 1, 1, 1}), TextAttribute("auto_pad", "NOTSET")});
  model.Initializer(FloatTensor("kernel", {1, 1, 3, 3}, std::vector<float>(9, 1)))
      .Input(Tensor32("image", {1, 1, "h", "w"}));
  model.Output("y").Output("z");
  return model.Bytes();
}

Result<ImportedModel> ImportBytes(std::string_view bytes) {
  return ImportOnnxBytes({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "hostile", {});
}

// A refusal says something.
void ExpectAnswer(const Result<ImportedModel>& answer) {
  if (!answer.has_value()) {
    EXPECT_FALSE(answer.error().message.empty());
  }
}

TEST(HostileModel, TheUndamagedModelIsImported) {
  const auto imported = ImportBytes(RichModel());
  EXPECT_TRUE(imported.has_value()) << ToString(imported.error());
}

TEST(HostileModel, SurvivesTruncationAnywhere) {
  const std::string bytes = RichModel();
  int refused = 0;
  for (size_t length = 0; length < bytes.size(); ++length) {
    const auto answer = ImportBytes(std::string_view(bytes).substr(0, length));
    ExpectAnswer(answer);
    refused += !answer.has_value();
  }
  EXPECT_GT(refused, static_cast<int>(bytes.size() * 9 / 10));
}

TEST(HostileModel, SurvivesEveryBitFlip) {
  const std::string bytes = RichModel();
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    ExpectAnswer(ImportBytes(damaged));
  }
}

TEST(HostileModel, SurvivesRandomOverwrites) {
  const std::string bytes = RichModel();
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = bytes;
    const int writes = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < writes; ++i) damaged[random() % damaged.size()] = static_cast<char>(random());
    ExpectAnswer(ImportBytes(damaged));
  }
}

TEST(HostileModel, RefusesASparseTensorOfFewValuesAndGigabytesOfZeros) {
  const auto read = [](int64_t elements) {
    SparseTensorProto sparse;
    *sparse.mutable_values() = FloatTensor("v", {2}, {1, 2});
    *sparse.mutable_indices() = IntTensor("i", {2}, {1, 3});
    sparse.add_dims(elements);
    WeightFiles none;
    return ReadSparseTensor(sparse, none);
  };
  ASSERT_TRUE(read(1 << 20).has_value());
  EXPECT_EQ(read(1 << 20)->ref.as<float>()[3], 2);
  EXPECT_EQ(read(1 << 28).error().code, ErrorCode::kLimitExceeded);
}

TEST(HostileModel, RefusesDeepNesting) {
  GraphProto graph;
  AddNode(*graph.mutable_node(), "Relu", {"x"}, {"y"});
  graph.add_output()->set_name("y");
  for (int depth = 0; depth < 40; ++depth) {
    GraphProto outer;
    AddNode(*outer.mutable_node(), "If", {"c"}, {"y"},
            {GraphAttribute("then_branch", graph), GraphAttribute("else_branch", GraphProto())});
    outer.add_output()->set_name("y");
    graph = outer;
  }
  TestModel model(13);
  model.graph() = graph;
  model.Input(Tensor32("x", {1})).Input(Tensor32("c", {}, 9));
  EXPECT_FALSE(model.Import().has_value());
}

}  // namespace
}  // namespace kiln::onnx

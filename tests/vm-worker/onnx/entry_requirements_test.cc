// Sizes that operators force: what no size can satisfy is refused at load, what a call gets wrong where it enters, and
// no call that the nodes would answer is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "tests/vm-worker/onnx/model_builder.h"
#include "vm-worker/interp/interpreter.h"
#include "vm-worker/load/prepare_program.h"
#include "vm-worker/onnx/program_builder.h"

namespace kiln::onnx {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

// An operator over the input x, one dim of which is under test: named k, or a number.
struct Family {
  const char* name;
  std::function<void(TestModel&, TestDim)> build;
  int64_t bad;                // a size that the operator refuses
  std::string hint;           // a range of such sizes; "" where the only ones are no range
  std::vector<int64_t> good;  // sizes at the border of what it takes
  std::string constraint;     // what it asks for, over k
};

TensorProto Ones(std::string_view name, std::vector<int64_t> dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return FloatTensor(name, std::move(dims), std::vector<float>(static_cast<size_t>(count), 1));
}

// x of these dims, weights of ones, and the node "it" over x and them.
std::function<void(TestModel&, TestDim)> Node(const char* op, std::vector<TestDim> x,
                                              std::vector<std::vector<int64_t>> weights,
                                              std::vector<AttributeProto> attributes = {}) {
  return [=](TestModel& model, TestDim k) {
    std::vector<TestDim> dims = x;
    for (TestDim& dim : dims)
      if (dim.name == "?") dim = k;
    model.Input(Tensor32("x", dims));
    NodeProto& node = AddNode(*model.graph().mutable_node(), op, {"x"}, {"y"});
    for (size_t i = 0; i < weights.size(); ++i) {
      model.Initializer(Ones("w" + std::to_string(i), weights[i]));
      node.add_input("w" + std::to_string(i));
    }
    for (const AttributeProto& attribute : attributes) *node.add_attribute() = attribute;
  };
}

// The same with one operand of integers.
std::function<void(TestModel&, TestDim)> WithInts(const char* op, std::vector<TestDim> x, std::vector<int64_t> operand,
                                                  std::vector<AttributeProto> attributes = {}) {
  return [=, plain = Node(op, x, {}, attributes)](TestModel& model, TestDim k) {
    plain(model, k);
    model.Initializer(IntTensor("operand", {static_cast<int64_t>(operand.size())}, operand));
    model.graph().mutable_node(0)->add_input("operand");
  };
}

const Family kFamilies[] = {
    {"MatMul", Node("MatMul", {2, "?"}, {{4, 3}}), 5, "k=1..3", {4}, "k == 4"},
    {"Gemm", Node("Gemm", {2, "?"}, {{3, 4}}, {IntAttribute("transB", 1)}), 5, "k=5..", {4}, "k == 4"},
    {"Conv groups",
     Node("Conv", {1, "?", 5, 5}, {{2, 2, 3, 3}}, {IntAttribute("group", 2)}),
     3,
     "k=1..3",
     {4},
     "k == 4"},
    {"Conv window", Node("Conv", {1, 1, "?"}, {{1, 1, 3}}), 2, "k=0..2", {3, 9}, "3 <= k"},
    {"ConvTranspose", Node("ConvTranspose", {1, "?", 3}, {{4, 1, 2}}), 3, "k=5..9", {4}, "k == 4"},
    {"MaxPool", Node("MaxPool", {1, 1, "?"}, {}, {IntsAttribute("kernel_shape", {3})}), 2, "k=1..2", {3, 4}, "3 <= k"},
    {"Concat", Node("Concat", {2, "?"}, {{1, 4}}, {IntAttribute("axis", 0)}), 1, "k=1..3", {4}, "k == 4"},
    {"Add", Node("Add", {2, "?"}, {{4}}), 5, "k=5..9", {1, 4}, "k broadcasts with 4"},
    {"Expand", WithInts("Expand", {"?", 1}, {4, 2}), 3, "k=2..3", {1, 4}, "k broadcasts with 4"},
    {"PRelu", Node("PRelu", {2, "?"}, {{4}}), 1, "k=1..3", {4}, "k == 4"},
    {"Reshape that derives", WithInts("Reshape", {"?", 3}, {-1, 5}), 1, "k=1..4", {0, 5, 10}, "5 divides 3*k"},
    {"Reshape that counts", WithInts("Reshape", {"?", 3}, {4, 6}), 7, "k=1..7", {8}, "3*k == 24"},
    {"Split", WithInts("Split", {"?"}, {1, 3}), 5, "k=1..3", {4}, "k == 4"},
    {"LSTM",
     Node("LSTM", {3, 1, "?"}, {{1, 8, 4}, {1, 8, 2}}, {IntAttribute("hidden_size", 2)}),
     5,
     "k=1..3",
     {4},
     "k == 4"},
    {"GRU",
     Node("GRU", {3, 1, "?"}, {{1, 6, 4}, {1, 6, 2}}, {IntAttribute("hidden_size", 2)}),
     5,
     "k=1..3",
     {4},
     "k == 4"},
    {"RNN",
     Node("RNN", {3, 1, "?"}, {{1, 2, 4}, {1, 2, 2}}, {IntAttribute("hidden_size", 2)}),
     5,
     "k=5..6",
     {4},
     "k == 4"},
    {"BatchNormalization", Node("BatchNormalization", {1, "?", 2}, {{4}, {4}, {4}, {4}}), 5, "k=1..3", {4}, "k == 4"},
    {"InstanceNormalization", Node("InstanceNormalization", {1, "?", 2}, {{4}, {4}}), 5, "k=1..3", {4}, "k == 4"},
    {"LayerNormalization", Node("LayerNormalization", {2, "?"}, {{4}, {4}}), 1, "k=1..3", {4}, "k == 4"},
    {"Einsum",
     Node("Einsum", {2, "?"}, {{4, 3}}, {TextAttribute("equation", "ij,jk->ik")}),
     5,
     "k=2..3",
     {1, 4},
     "k broadcasts with 4"},
    {"Gather", WithInts("Gather", {2, "?"}, {0, 3, -2}, {IntAttribute("axis", 1)}), 3, "k=1..3", {4, 6}, "4 <= k"},
    {"Gather from the end", WithInts("Gather", {"?"}, {-4}), 3, "k=1..3", {4, 6}, "4 <= k"},
    {"TopK", WithInts("TopK", {"?"}, {4}), 3, "k=1..3", {4, 5}, "4 <= k"},
    {"Squeeze", WithInts("Squeeze", {"?", 2}, {0}), 2, "k=2..3", {1}, "k == 1"},
    {"DepthToSpace",
     Node("DepthToSpace", {1, "?", 2, 2}, {}, {IntAttribute("blocksize", 2)}),
     6,
     "k=1..3",
     {0, 4, 8},
     "4 divides k"},
    {"Pad that reflects",
     WithInts("Pad", {"?"}, {2, 1}, {TextAttribute("mode", "reflect")}),
     2,
     "k=1..2",
     {3, 4},
     "3 <= k"},
    {"Pad that crops", WithInts("Pad", {"?"}, {-2, -3}), 4, "k=1..4", {5, 6}, "0 <= k - 5"},
    {"ArgMax", Node("ArgMax", {"?"}, {}, {IntAttribute("axis", 0)}), 0, "", {1, 2}, "1 <= k"},
};

TestModel ModelOf(const Family& family, TestDim k) {
  TestModel model(17);
  family.build(model, k);
  NodeProto& node = *model.graph().mutable_node(0);
  node.set_name("it");
  if (node.op_type() == "TopK") node.add_output("indices");
  if (node.op_type() == "Split") node.add_output("rest");
  model.Output("y");
  return model;
}

std::string FailureOf(const TestModel& model, const std::string& hint) {
  ImportOptions options;
  if (!hint.empty()) options.dim_hints.push_back(ParseDimHint(hint).value());
  const auto imported = model.Import(options);
  return imported.has_value() ? "" : imported.error().message;
}

TEST(EntryRequirements, AConstantThatContradictsIsRefusedAtLoad) {
  for (const Family& family : kFamilies) {
    EXPECT_THAT(FailureOf(ModelOf(family, family.bad), ""), AnyOf(HasSubstr("node 'it' ("), HasSubstr(" \"it\": ")))
        << family.name;
    EXPECT_THAT(FailureOf(ModelOf(family, family.bad), ""), HasSubstr(std::to_string(family.bad))) << family.name;
    for (const int64_t size : family.good) EXPECT_EQ(FailureOf(ModelOf(family, size), ""), "") << family.name;
  }
}

TEST(EntryRequirements, ARangeWithoutASizeThatFitsIsRefusedAtLoad) {
  for (const Family& family : kFamilies) {
    if (family.hint.empty()) continue;
    EXPECT_THAT(FailureOf(ModelOf(family, "k"), family.hint),
                AllOf(AnyOf(HasSubstr("node 'it' ("), HasSubstr(" \"it\": ")), HasSubstr("--dim " + family.hint)))
        << family.name;
    for (const int64_t size : family.good)
      EXPECT_EQ(FailureOf(ModelOf(family, "k"), "k=" + std::to_string(size) + ".." + std::to_string(size + 1)), "")
          << family.name << " " << size;
  }
}

TEST(EntryRequirements, ACallIsRefusedWhereItEnters) {
  for (const Family& family : kFamilies) {
    auto imported = ModelOf(family, "k").Import();
    ASSERT_TRUE(imported.has_value()) << family.name << ToString(imported.error());
    const std::vector<Dim> dims = *imported->inputs[0].desc.dims;
    const auto program = LoadedProgram::Load(std::move(imported->program));
    ASSERT_TRUE(program.has_value()) << family.name << ToString(program.error());
    VmContext context;
    const auto answer = [&](int64_t k) {
      Dims sizes;
      for (const Dim dim : dims) sizes.push_back(dim.is_const() ? dim.value() : k);
      const Tensor x = Tensor::Zeros(DType::kF32, sizes);
      const auto outputs = context.Run(**program, std::vector{x.ref});
      return outputs.has_value() ? "" : outputs.error().message;
    };
    size_t axis = 0;
    while (dims[axis].is_const()) ++axis;
    EXPECT_THAT(answer(family.bad),
                AllOf(HasSubstr("constraint " + family.constraint + " does not hold: k is " +
                                std::to_string(family.bad) + ", dim " + std::to_string(axis) + " of input \"x\""),
                      HasSubstr("\"it\" asks for it")))
        << family.name;
    for (const int64_t size : family.good) EXPECT_EQ(answer(size), "") << family.name << " " << size;
  }
}

TEST(EntryRequirements, NodesThatContradictEachOtherAreNamed) {
  TestModel model(17);
  model.Input(Tensor32("x", {2, "k"})).Initializer(Ones("a", {4, 3})).Initializer(Ones("b", {5, 3}));
  model.Node("MatMul", {"x", "a"}, {"y"}).Node("MatMul", {"x", "b"}, {"z"}).Output("y").Output("z");
  model.graph().mutable_node(0)->set_name("first");
  model.graph().mutable_node(1)->set_name("second");
  EXPECT_THAT(FailureOf(model, ""),
              AllOf(HasSubstr("node MatMul \"second\": constraint k == 5"), HasSubstr("k is dim 1 of input \"x\""),
                    HasSubstr("node MatMul \"first\" asks for k == 4")));
  // One of them is of no use: its result goes nowhere.
  model.graph().mutable_output()->RemoveLast();
  EXPECT_EQ(FailureOf(model, ""), "");
}

TEST(EntryRequirements, OfTwoInputs) {
  TestModel model(17);
  model.Input(Tensor32("x", {"n", "k"})).Input(Tensor32("w", {"m", 3})).Input(Tensor32("b", {"o"}));
  model.Node("MatMul", {"x", "w"}, {"p"}).Node("Add", {"p", "b"}, {"y"}).Output("y");
  auto imported = model.Import();
  ASSERT_TRUE(imported.has_value()) << ToString(imported.error());
  const auto program = LoadedProgram::Load(std::move(imported->program));
  ASSERT_TRUE(program.has_value()) << ToString(program.error());
  VmContext context;
  const auto answer = [&](int64_t k, int64_t m, int64_t o) {
    const Tensor x = Tensor::Zeros(DType::kF32, {2, k}), w = Tensor::Zeros(DType::kF32, {m, 3}),
                 b = Tensor::Zeros(DType::kF32, {o});
    const auto outputs = context.Run(**program, std::vector{x.ref, w.ref, b.ref});
    return outputs.has_value() ? "ok" : outputs.error().message;
  };
  EXPECT_EQ(answer(4, 4, 3), "ok");
  EXPECT_EQ(answer(0, 0, 1), "ok");
  EXPECT_THAT(answer(4, 5, 3), HasSubstr("constraint k == m does not hold: k is 4, dim 1 of input \"x\"; m is 5, dim "
                                         "0 of input \"w\""));
  EXPECT_THAT(answer(4, 4, 2), HasSubstr("constraint o broadcasts with 3 does not hold: o is 2, dim 0 of input \"b\""));
}

// --- no call is refused that the nodes answer ---

// Programs over inputs of random sizes, of random nodes that may or may not fit them.
class RandomModel {
 public:
  explicit RandomModel(uint64_t seed) : random_(seed), builder_("random") {}

  std::optional<Program> Build() {
    for (const char* name : {"a", "b", "c"}) sizes_.push_back(builder_.symbols().AddSymbol(name, {0, 8}).value());
    for (const int64_t size : {1, 2, 4}) sizes_.push_back(Dim::Const(size));
    for (int i = 0; i < 3; ++i) {
      std::vector<Dim> dims;
      for (int64_t rank = Below(4); rank >= 0; --rank) dims.push_back(sizes_[static_cast<size_t>(Below(6))]);
      values_.push_back(builder_.AddRegionInput("x" + std::to_string(i), {.dtype = DType::kF32, .dims = dims}));
    }
    for (int i = 0; i < 6; ++i) AddNode();
    // Some results are of no use.
    ValueList outputs;
    for (size_t i = 3; i < values_.size(); ++i)
      if (Below(3) > 0) outputs.push_back(values_[i]);
    if (outputs.empty() || !builder_.CloseRegion(outputs)) return std::nullopt;
    Program program = builder_.Take();
    if (!PrepareProgram(program) || !VerifyProgram(program)) return std::nullopt;
    return program;
  }

 private:
  int64_t Below(int64_t count) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(count)); }
  ValueId Any() { return values_[static_cast<size_t>(Below(static_cast<int64_t>(values_.size())))]; }
  int64_t Axis(ValueId value) {
    const TensorDesc& desc = builder_.Desc(value);
    return desc.has_rank() && desc.rank() > 0 ? Below(desc.rank()) : 0;
  }
  ValueId Ints(int64_t count, int64_t low, int64_t high) {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(low + Below(high - low + 1));
    return builder_.EmitInts(values);
  }
  static Attributes With(const char* name, AttributeValue value) {
    Attributes attributes;
    attributes.Set(name, std::move(value));
    return attributes;
  }

  // A node that no sizes fit is left out.
  void AddNode() {
    const ValueId x = Any(), y = Any();
    const TensorDesc& desc = builder_.Desc(x);
    const int64_t rank = desc.has_rank() ? desc.rank() : 1;
    const auto made = [&]() -> Result<ValueList> {
      switch (Below(16)) {
        case 0:
          return builder_.Emit(TensorOp::kMatMul, {x, y});
        case 1:
          return builder_.Emit(TensorOp::kAdd, {x, y});
        case 2:
          return builder_.Emit(TensorOp::kConcat, {x, y}, With("axis", Axis(x)));
        case 3:
          return builder_.Emit(TensorOp::kReshape, {x, Ints(2, 0, 4)});
        case 4:
          return builder_.Emit(TensorOp::kReshape, {x, builder_.EmitInts(std::vector{int64_t{-1}, 1 + Below(5)})});
        case 5:
          return builder_.Emit(TensorOp::kGather, {x, Ints(2, -4, 3)}, With("axis", Axis(x)));
        case 6:
          return builder_.Emit(TensorOp::kSplit, {x, Ints(2, 0, 3)}, With("axis", Axis(x)), 2);
        case 7:
          return builder_.Emit(TensorOp::kSqueeze, {x, builder_.EmitInts(std::vector{Axis(x)})});
        case 8:
          return builder_.Emit(TensorOp::kTopK, {x, Ints(1, 0, 3)}, With("axis", Axis(x)), 2);
        case 9:
          return builder_.Emit(TensorOp::kPad, {x, Ints(2 * rank, -2, 2)},
                               With("mode", std::string(Below(2) ? "reflect" : "edge")));
        case 10:
          return builder_.Emit(TensorOp::kArgMax, {x}, With("axis", Axis(x)));
        case 11:
          return builder_.Emit(TensorOp::kExpand, {x, Ints(rank, 0, 4)});
        case 12:
          return builder_.Emit(TensorOp::kMaxPool, {x}, With("kernel_shape", std::vector<int64_t>{1 + Below(3)}));
        case 13:
          return builder_.Emit(TensorOp::kPRelu, {x, y});
        case 14: {
          ASSIGN_OR_RETURN(const ValueId shape, builder_.EmitOne(TensorOp::kShape, {y}));
          return builder_.Emit(TensorOp::kReshape, {x, shape}, With("allowzero", Below(2)));
        }
        default:
          return builder_.Emit(TensorOp::kEinsum, {x, y}, With("equation", std::string("ij,jk->ik")));
      }
    }();
    if (!made.has_value()) return;
    for (const ValueId value : *made)
      if (builder_.Desc(value).dtype == DType::kF32) values_.push_back(value);
  }

  std::mt19937_64 random_;
  ProgramBuilder builder_;
  std::vector<Dim> sizes_;
  ValueList values_;
};

TEST(EntryRequirements, RefuseNoCallThatNodesAnswer) {
  int answered = 0, refused = 0, refused_at_load = 0, left_to_nodes = 0;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    const auto program = RandomModel(seed).Build();
    if (!program) continue;
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto without = LoadedProgram::Load(*program, {.entry_requirements = false});
    ASSERT_TRUE(without.has_value()) << ToString(without.error());
    const auto with = LoadedProgram::Load(*program);
    std::mt19937_64 random(seed);
    VmContext context;
    for (int trial = 0; trial < 24; ++trial) {
      std::vector<int64_t> sizes;
      for (size_t s = 0; s < program->symbols.symbol_count(); ++s)
        sizes.push_back(static_cast<int64_t>(random() % (trial < 12 ? 5 : 9)));
      std::vector<Tensor> tensors;
      std::vector<TensorRef> inputs;
      for (const ValueId input : program->entry().regions[0].inputs) {
        Dims dims;
        for (const Dim dim : *program->entry().values[static_cast<size_t>(input)].desc.dims)
          dims.push_back(*program->symbols.Evaluate(dim, sizes));
        tensors.push_back(Tensor::Zeros(DType::kF32, dims));
        inputs.push_back(tensors.back().ref);
      }
      const bool nodes_answer = context.Run(**without, inputs).has_value();
      if (!with.has_value()) {
        EXPECT_FALSE(nodes_answer) << with.error().message;
        continue;
      }
      const auto outputs = context.Run(**with, inputs);
      EXPECT_EQ(outputs.has_value(), nodes_answer) << (outputs ? "" : outputs.error().message);
      const bool at_entry = !outputs && outputs.error().message.find("asks for it") != std::string::npos;
      ++(outputs ? answered : at_entry ? refused : left_to_nodes);
    }
    refused_at_load += !with.has_value();
  }
  EXPECT_GT(answered, 3000);
  EXPECT_GT(refused, 3000);
  EXPECT_GT(refused_at_load, 20);
  RecordProperty("left_to_nodes", left_to_nodes);
}

}  // namespace
}  // namespace kiln::onnx

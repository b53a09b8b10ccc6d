#include <gtest/gtest.h>

#include "common/bytecode/program_text.h"

namespace kiln {
namespace {

// A program with one function that has every structure the verifier knows.
Program Valid() {
  auto program = ParseProgram(R"(program "valid" {
  symbol n
  constant one : f32[] = [1.0]
  func main(%x: f32[n], %flag: bool[], %trips: i64[]) -> (%y, %last, %all) {
    %one : f32[] = Constant() {value = @one}
    %y : f32[n] = If(%flag) "choose" then() -> (%a) {
      %a : f32[n] = Add(%x, %one)
    } else() -> (%x) {
    }
    %last : f32[n], %all : f32[*] = Loop(%trips, %flag, %y) body(%i: i64[], %go: bool[], %s: f32[n]) -> (%go, %t, %t) {
      %t : f32[n] = Mul(%s, %y)
    }
  }
}
)");
  EXPECT_TRUE(program.has_value()) << (program ? "" : program.error().message);
  return *std::move(program);
}

void ExpectRejected(const Program& program, std::string_view part) {
  const auto status = VerifyProgram(program);
  ASSERT_FALSE(status.has_value()) << part;
  EXPECT_NE(status.error().message.find(part), std::string::npos)
      << "wanted: " << part << "\ngot: " << status.error().message;
}

using Edit = void (*)(Program&);
struct Row {
  Edit edit;
  const char* message;
};

TEST(VerifyProgram, RejectsBrokenStructureAndNamesTheNode) {
  ASSERT_TRUE(VerifyProgram(Valid()).has_value());
  // Regions: 0 body, 1 then, 2 else, 3 loop body. Values: 0 x, 1 flag, 2 trips, 3 one, 4 a, 5 y, 6 i, 7 go, 8 s, 9 t,
  // 10 last, 11 all.
  const Row rows[] = {
      {[](Program& p) { p.functions.clear(); }, "the program has no function"},
      {[](Program& p) { p.functions[0].regions.clear(); }, "it has no body region"},
      {[](Program& p) { p.functions[0].regions[1].nodes[0].inputs[0] = 99; },
       "function \"main\": region 0, node 1 (If \"choose\"): region 1, node 0 (Add): input 0 is value 99 of 12"},
      {[](Program& p) { p.functions[0].regions[1].nodes[0].inputs[0] = -2; }, "input 0 is value -2 of 12"},
      {[](Program& p) { p.functions[0].regions[1].nodes[0].inputs[0] = 5; },
       "value 5 \"y\", is not defined before its use"},
      {[](Program& p) { p.functions[0].regions[0].outputs[0] = 4; },
       "an output, value 4 \"a\", is not defined before its use"},
      {[](Program& p) { p.functions[0].regions[1].nodes[0].outputs[0] = 0; }, "value 0 \"x\" is defined twice"},
      {[](Program& p) { p.functions[0].regions[1].nodes[0].outputs[0] = kNoValue; }, "it defines value -1 of 12"},
      {[](Program& p) { p.functions[0].regions[1].nodes[0].inputs.pop_back(); }, "it has 1 inputs, 2 expected"},
      {[](Program& p) { p.functions[0].regions[1].nodes[0].inputs[1] = kNoValue; }, "input 1 is required but absent"},
      {[](Program& p) { p.functions[0].regions[1].nodes[0].op = static_cast<TensorOp>(60000); },
       "the op does not exist"},
      {[](Program& p) { p.functions[0].regions[1].nodes[0].regions.push_back(2); }, "it owns 1 regions instead of 0"},
      {[](Program& p) { p.functions[0].regions[0].nodes[1].regions[1] = 1; }, "region 1 has two owners"},
      {[](Program& p) { p.functions[0].regions[0].nodes[1].regions[1] = 0; }, "region 0 has two owners"},
      {[](Program& p) { p.functions[0].regions[0].nodes[1].regions[1] = 77; }, "region 77 of 4"},
      {[](Program& p) { p.functions[0].regions[0].nodes[1].regions.pop_back(); }, "it owns 1 regions instead of 2"},
      {[](Program& p) { p.functions[0].regions.emplace_back(); }, "region 4 has no owner"},
      {[](Program& p) { p.functions[0].values.emplace_back(); }, "value 12 is never defined"},
      {[](Program& p) { p.functions[0].regions[2].outputs.clear(); }, "its region has 0 outputs instead of 1"},
      {[](Program& p) { p.functions[0].values[1].desc.dtype = DType::kF32; }, "its condition is not bool"},
      {[](Program& p) { p.functions[0].values[5].desc.dtype = DType::kF16; },
       "the node's output is f16, but the branch's is f32"},
      {[](Program& p) { p.functions[0].values[4].desc.dtype = DType::kF16; },
       "value 4 \"a\" is f16, but the op gives f32"},
      {[](Program& p) { p.functions[0].values[2].desc.dtype = DType::kF32; },
       "trip count and iteration number are i64"},
      {[](Program& p) { p.functions[0].values[7].desc.dtype = DType::kU8; }, "loop conditions are bool"},
      {[](Program& p) { p.functions[0].regions[3].outputs.pop_back(); }, "its region has 2 outputs instead of 3"},
      {[](Program& p) { p.functions[0].values[3].desc.dims->push_back(Dim::Const(2)); }, "the constant is f32[]"},
      {[](Program& p) { p.functions[0].values[0].desc.dims->assign(9, Dim::Const(1)); },
       "rank 9 passes the limit of 8"},
      {[](Program& p) { p.functions[0].values[0].desc.dims->assign(1, Dim::Const(-1)); }, "dim -1 is negative"},
      {[](Program& p) { p.functions[0].values[0].desc.dims->assign(3, Dim::Const(int64_t{1} << 30)); },
       "passes the limit"},
      {[](Program& p) { p.functions[0].values[0].desc.dtype = static_cast<DType>(77); },
       "dtype number 77 does not exist"},
      {[](Program& p) {
         SymbolTable other;
         for (int i = 0; i < 5; ++i) (*p.functions[0].values[0].desc.dims)[0] = other.FreshSymbol();
       },
       "a dim is not of the program's symbol table"},
      {[](Program& p) { p.constants[0].tensor.ref.data = nullptr; }, "constant 0 \"one\" has no data"},
      {[](Program& p) { p.constants[0].tensor.ref.dims = {-4}; }, "dim -4"},
      {[](Program& p) { p.functions[0].regions[0].nodes[0].attributes = {}; }, "attribute \"value\" is missing"},
      {[](Program& p) { p.functions[0].regions[0].nodes[0].attributes.Set("value", ConstantId{1}); },
       "names constant 1 of 1"},
      {[](Program& p) { p.functions[0].regions[0].nodes[0].attributes.Set("value", int64_t{0}); },
       "is Int instead of Constant"},
      {[](Program& p) { p.functions[0].regions[0].nodes[0].attributes.Set("axis", int64_t{0}); },
       "attribute \"axis\" is not one of this op's"},
      {[](Program& p) { p.functions[0].regions[0].nodes[0].name.assign(5000, 'x'); }, "its name passes 4096 bytes"},
  };
  for (const Row& row : rows) {
    Program program = Valid();
    row.edit(program);
    ExpectRejected(program, row.message);
  }
}

TEST(VerifyProgram, ACastGivesTheDTypeThatItNames) {
  const auto parse = [](const char* dtype) {
    return ParseProgram(std::string("program \"p\" { func main(%x: f32[2]) -> (%y) { %y : ") + dtype +
                        "[2] = Cast(%x) {to = 2} } }");
  };
  EXPECT_TRUE(parse("u8").has_value());
  ASSERT_FALSE(parse("f64").has_value());
  EXPECT_NE(parse("f64").error().message.find("is f64, but the op gives u8"), std::string::npos);
}

TEST(VerifyProgram, AShapeVectorHasTheDimsThatItLists) {
  const auto parse = [](const std::string& desc, const std::string& attributes) {
    return ParseProgram("program \"p\" { func main(%x: f32[2]) -> (%y) { %y : " + desc + " = ShapeVector() {" +
                        attributes + "} } }");
  };
  EXPECT_TRUE(parse("i64[2]", "dims = dims[1, 4]").has_value());
  EXPECT_TRUE(parse("i64[*]", "dims = dims[1, 4]").has_value());
  EXPECT_TRUE(parse("i64[]", "dims = dims[4], scalar = 1").has_value());
  const auto rejected = [&](const std::string& desc, const std::string& attributes, const std::string& part) {
    const auto program = parse(desc, attributes);
    ASSERT_FALSE(program.has_value()) << desc << " " << attributes;
    EXPECT_NE(program.error().message.find(part), std::string::npos) << program.error().message;
  };
  rejected("i64[4]", "dims = dims[1, 4]", "the shape is i64[2]");
  rejected("i64[]", "dims = dims[4]", "the shape is i64[1]");
  rejected("i64[1]", "dims = dims[4], scalar = 1", "the shape is i64[]");
  rejected("i64[*]", "dims = dims[1, 2, 3, 4, 5, 6, 7, 8, 9], scalar = 1", "has one dim, not 9");
  rejected("i64[]", "dims = dims[], scalar = 1", "has one dim, not 0");
}

TEST(VerifyProgram, AScansStateKeepsItsDType) {
  const auto parse = [](const char* next) {
    return ParseProgram(
        std::string("program \"p\" { func main(%s: f32[2], %x: f32[3, 2]) -> (%last) { %last : ") + next +
        "[2] = Scan(%s, %x) {num_scan_inputs = 1} body(%state: f32[2], %row: f32[2]) -> (%c) { %c : " + next +
        "[2] = Cast(%state) {to = " + (next == std::string("f32") ? "1" : "11") + "} } } }");
  };
  EXPECT_TRUE(parse("f32").has_value());
  ASSERT_FALSE(parse("f64").has_value());
  EXPECT_NE(parse("f64").error().message.find("a state is f32, but its next value is f64"), std::string::npos);
}

TEST(VerifyProgram, RegionsNestToTheLimit) {
  for (int depth : {limits::kRegionDepthMax, limits::kRegionDepthMax + 1}) {
    Program program;
    Function function{.name = "f", .values = {{"c", StaticDesc(DType::kBool, {})}}, .regions = {}};
    function.regions.resize(static_cast<size_t>(2 * depth + 1));
    function.regions[0].inputs = {0};
    for (int i = 0; i < depth; ++i) {
      Node node{.op = TensorOp::kIf, .name = "", .inputs = {0}, .outputs = {}, .attributes = {}, .regions = {}};
      node.regions = {2 * i + 1, 2 * i + 2};
      function.regions[static_cast<size_t>(i == 0 ? 0 : 2 * i - 1)].nodes.push_back(node);
    }
    program.functions.push_back(std::move(function));
    EXPECT_EQ(VerifyProgram(program).has_value(), depth == limits::kRegionDepthMax) << depth;
  }
}

TEST(Attributes, AreSortedAndTyped) {
  Attributes attributes;
  attributes.Set("b", int64_t{2});
  attributes.Set("a", 0.5);
  attributes.Set("b", int64_t{3});
  attributes.Set("c", std::vector<int64_t>{1, 2});
  ASSERT_EQ(attributes.all().size(), 3u);
  EXPECT_EQ(attributes.all()[0].name, "a");
  EXPECT_EQ(attributes.Int("b", 0), 3);
  EXPECT_EQ(attributes.Int("a", 9), 9);
  EXPECT_EQ(attributes.Float("a", 0), 0.5);
  EXPECT_EQ(attributes.Ints("c").size(), 2u);
  EXPECT_TRUE(attributes.Ints("b").empty());
  EXPECT_EQ(attributes.Constant("b"), -1);
}

TEST(OpTable, AttributeRowsBelongToTheirOp) {
  EXPECT_EQ(FindOpAttribute(TensorOp::kGather, "axis")->type, AttributeType::kInt);
  EXPECT_EQ(FindOpAttribute(TensorOp::kGather, "perm"), nullptr);
  EXPECT_TRUE(OpAttributes(TensorOp::kAdd).empty());
  for (int i = 0; i < TensorOpCount(); ++i) {
    const TensorOpInfo& row = TensorOpRow(i);
    EXPECT_EQ(TensorOpFromName(row.name), row.op);
    EXPECT_EQ(TensorOpFromNumber(static_cast<int>(row.op)), row.op);
    EXPECT_EQ(&OpInfo(row.op), &row);
    EXPECT_LE(row.min_inputs, row.max_inputs) << row.name;
    for (const OpAttributeInfo& attribute : OpAttributes(row.op)) EXPECT_EQ(attribute.op, row.op);
  }
  EXPECT_NE(TensorOpTablePrefix(10), TensorOpTablePrefix(11));
}

}  // namespace
}  // namespace kiln

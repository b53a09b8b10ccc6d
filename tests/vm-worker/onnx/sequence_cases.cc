#include "tests/vm-worker/onnx/sequence_cases.h"

#include <gtest/gtest.h>

#include <cstring>

namespace kiln::onnx {

namespace {

void ExpectEqual(const TensorRef& got, const TensorRef& expected) {
  ASSERT_EQ(got.dtype, expected.dtype);
  ASSERT_EQ(got.dims, expected.dims);
  const Tensor whole = MakeContiguous(got);
  if (got.bytes() == 0) return;
  EXPECT_EQ(std::memcmp(whole.ref.data, expected.data, static_cast<size_t>(expected.bytes())), 0);
}

}  // namespace

void ExpectAnswers(const SequenceCase& test, const SequenceRunner& run) {
  for (size_t r = 0; r < test.runs.size(); ++r) {
    SCOPED_TRACE("run " + std::to_string(r));
    const SequenceRun& expected = test.runs[r];
    std::vector<TensorRef> inputs;
    for (const Tensor& input : expected.inputs) inputs.push_back(input.ref);
    const Result<std::vector<Tensor>> outputs = run(inputs);
    if (!expected.error.empty()) {
      ASSERT_FALSE(outputs.has_value());
      EXPECT_NE(ToString(outputs.error()).find(expected.error), std::string::npos) << ToString(outputs.error());
      continue;
    }
    ASSERT_TRUE(outputs.has_value()) << ToString(outputs.error());
    ASSERT_EQ(outputs->size(), expected.outputs.size());
    for (size_t i = 0; i < outputs->size(); ++i) {
      SCOPED_TRACE("output " + std::to_string(i));
      ExpectEqual((*outputs)[i].ref, expected.outputs[i].ref);
    }
  }
}

GraphProto LoopBody(const std::function<void(GraphProto&)>& nodes) {
  GraphProto body;
  *body.add_input() = Tensor32("i", {}, 7);
  *body.add_input() = Tensor32("go", {}, 9);
  body.add_input()->set_name("s");
  AddNode(*body.mutable_node(), "Identity", {"go"}, {"goes_on"});
  nodes(body);
  for (const char* name : {"goes_on", "longer"}) body.add_output()->set_name(name);
  return body;
}

namespace {

using Nodes = google::protobuf::RepeatedPtrField<NodeProto>;

Tensor F(const Dims& dims, const std::vector<float>& values) {
  return Tensor::Of<float>(DType::kF32, dims, std::span<const float>(values));
}
Tensor I(const Dims& dims, const std::vector<int64_t>& values) {
  return Tensor::Of<int64_t>(DType::kI64, dims, std::span<const int64_t>(values));
}
Tensor Scalar(int64_t value) {
  return I({}, {value});
}

// Inserts x + i, at `position` where one is named.
GraphProto Shifted(const std::string& position = "") {
  return LoopBody([&](GraphProto& body) {
    Nodes& nodes = *body.mutable_node();
    AddNode(nodes, "Cast", {"i"}, {"f"}, {IntAttribute("to", 1)});
    AddNode(nodes, "Add", {"x", "f"}, {"next"});
    if (position == "zero_inside") {
      AddNode(nodes, "Constant", {}, {position}, {TensorAttribute("value", IntTensor("", {}, {0}))});
    }
    AddNode(nodes, "SequenceInsert", {"s", "next", position}, {"longer"});
  });
}

// Inserts the first i + `more` entries of x along `axis`.
GraphProto Prefixes(int64_t axis, int64_t more = 1) {
  return LoopBody([&](GraphProto& body) {
    Nodes& nodes = *body.mutable_node();
    *body.add_initializer() = IntTensor("more", {1}, {more});
    *body.add_initializer() = IntTensor("from", {1}, {0});
    *body.add_initializer() = IntTensor("along", {1}, {axis});
    AddNode(nodes, "Add", {"i", "more"}, {"to"});
    AddNode(nodes, "Slice", {"x", "from", "to", "along"}, {"part"});
    AddNode(nodes, "SequenceInsert", {"s", "part"}, {"longer"});
  });
}

// A Loop of `trips` over an empty sequence; the result is "s".
TestModel& Collect(TestModel& model, const GraphProto& body, int64_t dtype = 1) {
  return model.Input(Tensor32("trips", {}, 7))
      .Node("SequenceEmpty", {}, {"none"}, {IntAttribute("dtype", dtype)})
      .Node("Loop", {"trips", "", "none"}, {"s"}, {GraphAttribute("body", body)});
}
TestModel& Join(TestModel& model, const std::string& sequence, const std::string& output, int64_t axis,
                int64_t new_axis = 0) {
  return model
      .Node("ConcatFromSequence", {sequence}, {output},
            {IntAttribute("axis", axis), IntAttribute("new_axis", new_axis)})
      .Output(output);
}
TestModel& Length(TestModel& model, const std::string& sequence, const std::string& output) {
  return model.Node("SequenceLength", {sequence}, {output}).Output(output);
}
TestModel& At(TestModel& model, const std::string& sequence, const std::string& position, const std::string& output) {
  return model.Node("SequenceAt", {sequence, position}, {output}).Output(output);
}

void AddAppends(std::vector<SequenceCase>& cases) {
  TestModel all(17);
  Collect(all.Input(Tensor32("x", {"n"})).Input(Tensor32("p", {}, 7)), Shifted());
  Length(Join(Join(Join(all, "s", "flat", 0), "s", "rows", 0, 1), "s", "columns", -1, 1), "s", "length");
  At(all, "s", "p", "at");
  const Tensor x = F({2}, {1, 5});
  cases.push_back(
      {"appended",
       all,
       {{{x, Scalar(1), Scalar(3)},
         {F({6}, {1, 5, 2, 6, 3, 7}), F({3, 2}, {1, 5, 2, 6, 3, 7}), F({2, 3}, {1, 2, 3, 5, 6, 7}), Scalar(3),
          F({2}, {2, 6})}},
        {{x, Scalar(-1), Scalar(1)}, {F({2}, {1, 5}), F({1, 2}, {1, 5}), F({2, 1}, {1, 5}), Scalar(1), F({2}, {1, 5})}},
        {{x, Scalar(3), Scalar(3)}, {}, "index 3 is outside axis 0"},
        {{x, Scalar(-4), Scalar(3)}, {}, "index -4 is outside axis 0"},
        {{x, Scalar(0), Scalar(0)}, {}, "index 0 is outside axis 0"}}});

  TestModel length(17);
  Length(Collect(length.Input(Tensor32("x", {"n"})), Shifted()), "s", "length");
  cases.push_back({"length_of_none", length, {{{x, Scalar(0)}, {Scalar(0)}}, {{x, Scalar(2)}, {Scalar(2)}}}});
  TestModel none(17);
  Join(Collect(none.Input(Tensor32("x", {"n"})), Shifted()), "s", "y", 0);
  cases.push_back({"nothing_to_concat",
                   none,
                   {{{x, Scalar(1)}, {F({2}, {1, 5})}}, {{x, Scalar(0)}, {}, "index 0 is outside axis 0"}}});
  TestModel stack(17);
  Join(Collect(stack.Input(Tensor32("x", {"n"})), Shifted()), "s", "y", 1, 1);
  cases.push_back({"nothing_to_stack",
                   stack,
                   {{{x, Scalar(2)}, {F({2, 2}, {1, 2, 5, 6})}}, {{x, Scalar(0)}, {}, "index 0 is outside axis 0"}}});

  // What was there before the loop, and inserts behind it, in front of it and in it.
  for (const std::string position : {"", "front", "zero_inside", "last"}) {
    TestModel more(17);
    more.Input(Tensor32("x", {"n"})).Input(Tensor32("trips", {}, 7));
    more.Initializer(IntTensor("front", {}, {0})).Initializer(IntTensor("last", {}, {-1}));
    more.Node("Neg", {"x"}, {"minus"})
        .Node("SequenceConstruct", {"minus", "x"}, {"two"})
        .Node("Loop", {"trips", "", "two"}, {"s"}, {GraphAttribute("body", Shifted(position))});
    Length(Join(more, "s", "rows", 0, 1), "s", "length");
    std::vector<float> values = {2, 6, 1, 5, -1, -5, 1, 5};
    if (position.empty()) values = {-1, -5, 1, 5, 1, 5, 2, 6};
    if (position == "last") values = {-1, -5, 1, 5, 2, 6, 1, 5};
    cases.push_back(
        {position.empty() ? "appended_to_some" : "inserted_at_" + position,
         more,
         {{{x, Scalar(0)}, {F({2, 2}, {-1, -5, 1, 5}), Scalar(2)}}, {{x, Scalar(2)}, {F({4, 2}, values), Scalar(4)}}}});
  }
}

// Appends x * i where i is even, in an If of the body.
GraphProto EvenOnly() {
  GraphProto add, leave;
  AddNode(*add.mutable_node(), "SequenceInsert", {"s", "next"}, {"with"});
  add.add_output()->set_name("with");
  AddNode(*leave.mutable_node(), "Identity", {"s"}, {"without"});
  leave.add_output()->set_name("without");
  return LoopBody([&](GraphProto& body) {
    Nodes& nodes = *body.mutable_node();
    *body.add_initializer() = IntTensor("two", {}, {2});
    *body.add_initializer() = IntTensor("zero", {}, {0});
    AddNode(nodes, "Cast", {"i"}, {"f"}, {IntAttribute("to", 1)});
    AddNode(nodes, "Mul", {"x", "f"}, {"next"});
    AddNode(nodes, "Mod", {"i", "two"}, {"rest"});
    AddNode(nodes, "Equal", {"rest", "zero"}, {"even"});
    AddNode(nodes, "If", {"even"}, {"longer"},
            {GraphAttribute("then_branch", add), GraphAttribute("else_branch", leave)});
  });
}

// Appends the sum of the two last elements.
GraphProto Fibonacci() {
  return LoopBody([&](GraphProto& body) {
    Nodes& nodes = *body.mutable_node();
    *body.add_initializer() = IntTensor("last", {}, {-1});
    *body.add_initializer() = IntTensor("one", {}, {1});
    AddNode(nodes, "SequenceLength", {"s"}, {"length"});
    AddNode(nodes, "Sub", {"length", "one"}, {"at"});
    AddNode(nodes, "Sub", {"at", "one"}, {"before"});
    AddNode(nodes, "SequenceAt", {"s", "last"}, {"a"});
    AddNode(nodes, "SequenceAt", {"s", "before"}, {"b"});
    AddNode(nodes, "Add", {"a", "b"}, {"next"});
    AddNode(nodes, "SequenceInsert", {"s", "next"}, {"longer"});
  });
}

void AddLoops(std::vector<SequenceCase>& cases) {
  const Tensor x = F({2}, {1, 5});
  TestModel even(17);
  Length(Join(Collect(even.Input(Tensor32("x", {"n"})), EvenOnly()), "s", "y", 0, 1), "s", "length");
  cases.push_back({"appended_by_a_branch",
                   even,
                   {{{x, Scalar(4)}, {F({2, 2}, {0, 0, 2, 10}), Scalar(2)}},
                    {{x, Scalar(5)}, {F({3, 2}, {0, 0, 2, 10, 4, 20}), Scalar(3)}},
                    {{x, Scalar(0)}, {}, "index 0 is outside axis 0"}}});

  TestModel sums(17);
  sums.Input(Tensor32("x", {"n"})).Input(Tensor32("trips", {}, 7));
  sums.Node("SequenceConstruct", {"x", "x"}, {"two"})
      .Node("Loop", {"trips", "", "two"}, {"s"}, {GraphAttribute("body", Fibonacci())});
  Join(sums, "s", "y", 0, 1);
  cases.push_back({"read_while_it_grows",
                   sums,
                   {{{x, Scalar(3)}, {F({5, 2}, {1, 5, 1, 5, 2, 10, 3, 15, 5, 25})}},
                    {{x, Scalar(0)}, {F({2, 2}, {1, 5, 1, 5})}}}});

  // More trips than a Loop is copied out for.
  TestModel many(17);
  many.Input(Tensor32("x", {"n"})).Initializer(IntTensor("trips", {}, {5000})).Initializer(IntTensor("last", {}, {-1}));
  many.Node("SequenceEmpty", {}, {"none"})
      .Node("Loop", {"trips", "", "none"}, {"s"}, {GraphAttribute("body", Shifted())});
  At(Length(many, "s", "length"), "s", "last", "at");
  cases.push_back({"many_known_trips", many, {{{x}, {Scalar(5000), F({2}, {5000, 5004})}}}});

  // Runs while a total is below a limit; the elements are scalars.
  GraphProto body;
  *body.add_input() = Tensor32("i", {}, 7);
  *body.add_input() = Tensor32("go", {}, 9);
  *body.add_input() = Tensor32("total", {});
  body.add_input()->set_name("s");
  AddNode(*body.mutable_node(), "Add", {"total", "step"}, {"more"});
  AddNode(*body.mutable_node(), "Less", {"more", "limit"}, {"goes_on"});
  AddNode(*body.mutable_node(), "SequenceInsert", {"s", "more"}, {"longer"});
  AddNode(*body.mutable_node(), "Identity", {"i"}, {"seen"});
  for (const char* name : {"goes_on", "more", "longer", "seen"}) body.add_output()->set_name(name);
  TestModel until(17);
  until.Input(Tensor32("step", {})).Input(Tensor32("limit", {})).Initializer(FloatTensor("zero", {}, {0}));
  until.Initializer(IntTensor("most", {}, {50}));
  until.Node("SequenceEmpty", {}, {"none"})
      .Node("Less", {"zero", "limit"}, {"first"})
      .Node("Loop", {"most", "first", "zero", "none"}, {"total", "s", "trips"}, {GraphAttribute("body", body)});
  until.Output("total").Output("trips");
  Length(Join(until, "s", "y", 0, 1), "s", "length");
  cases.push_back({"until_a_condition",
                   until,
                   {{{F({}, {2}), F({}, {5})}, {F({}, {6}), I({3}, {0, 1, 2}), F({3}, {2, 4, 6}), Scalar(3)}},
                    {{F({}, {2}), F({}, {0})}, {}, "index 0 is outside axis 0"}}});

  // A loop in a loop: x + i once, then i times the inner count.
  const GraphProto inner = LoopBody([](GraphProto& graph) {
    Nodes& nodes = *graph.mutable_node();
    graph.mutable_input(0)->set_name("j");
    graph.mutable_input(1)->set_name("inner_go");
    graph.mutable_input(2)->set_name("inner_s");
    graph.mutable_node(0)->set_input(0, "inner_go");
    graph.mutable_node(0)->set_output(0, "inner_goes_on");
    AddNode(nodes, "Cast", {"j"}, {"g"}, {IntAttribute("to", 1)});
    AddNode(nodes, "Sub", {"x", "g"}, {"less"});
    AddNode(nodes, "SequenceInsert", {"inner_s", "less"}, {"inner_longer"});
  });
  GraphProto named = inner;
  named.mutable_output(0)->set_name("inner_goes_on");
  named.mutable_output(1)->set_name("inner_longer");
  TestModel nested(17);
  Collect(nested.Input(Tensor32("x", {"n"})), LoopBody([&](GraphProto& graph) {
            Nodes& nodes = *graph.mutable_node();
            AddNode(nodes, "SequenceInsert", {"s", "x"}, {"one"});
            AddNode(nodes, "Loop", {"i", "", "one"}, {"longer"}, {GraphAttribute("body", named)});
          }));
  Join(nested, "s", "y", 0);
  cases.push_back({"nested",
                   nested,
                   {{{x, Scalar(3)}, {F({12}, {1, 5, 1, 5, 1, 5, 1, 5, 1, 5, 0, 4})}},
                    {{x, Scalar(0)}, {}, "index 0 is outside axis 0"}}});
}

void AddUneven(std::vector<SequenceCase>& cases) {
  const Tensor x = F({3}, {1, 2, 3});
  TestModel prefixes(17);
  Collect(prefixes.Input(Tensor32("x", {"n"})).Input(Tensor32("p", {}, 7)), Prefixes(0));
  At(Length(Join(prefixes, "s", "y", 0), "s", "length"), "s", "p", "at");
  cases.push_back({"uneven",
                   prefixes,
                   {{{x, Scalar(1), Scalar(3)}, {F({6}, {1, 1, 2, 1, 2, 3}), Scalar(3), F({2}, {1, 2})}},
                    {{x, Scalar(-1), Scalar(2)}, {F({3}, {1, 1, 2}), Scalar(2), F({2}, {1, 2})}},
                    {{x, Scalar(2), Scalar(2)}, {}, "index 2 is outside axis 0"},
                    {{x, Scalar(0), Scalar(0)}, {}, "index 0 is outside axis 0"}}});

  const Tensor matrix = F({2, 3}, {1, 2, 3, 4, 5, 6});
  TestModel columns(17);
  Collect(columns.Input(Tensor32("x", {"n", "m"})).Input(Tensor32("p", {}, 7)), Prefixes(1, 0));
  At(Join(columns, "s", "y", -1), "s", "p", "at");
  cases.push_back({"uneven_columns",
                   columns,
                   {{{matrix, Scalar(2), Scalar(3)}, {F({2, 3}, {1, 1, 2, 4, 4, 5}), F({2, 2}, {1, 2, 4, 5})}},
                    {{matrix, Scalar(0), Scalar(1)}, {F({2, 0}, {}), F({2, 0}, {})}},
                    {{matrix, Scalar(0), Scalar(0)}, {}, "index 0 is outside axis 0"}}});

  // Sizes that may differ and must not: along another axis, or along a new one.
  for (const bool stacked : {false, true}) {
    TestModel even(17);
    Collect(even.Input(Tensor32("x", {"n", "m"})), Prefixes(1));
    Join(even, "s", "y", 0, stacked);
    const Dims dims = stacked ? Dims{1, 2, 1} : Dims{2, 1};
    cases.push_back({stacked ? "sizes_to_stack" : "sizes_beside_the_axis",
                     even,
                     {{{matrix, Scalar(1)}, {F(dims, {1, 4})}},
                      {{matrix, Scalar(3)}, {}, "cannot reshape [6] to [3, 3]"},
                      {{matrix, Scalar(0)}, {}, "index 0 is outside axis 0"}}});
  }

  // Lists of 0, 1, … i - 1, the first ones of a size that only running tells: all equal, so that they can be stacked.
  const auto ranges = [](const std::string& limit) {
    return LoopBody([&](GraphProto& body) {
      Nodes& nodes = *body.mutable_node();
      *body.add_initializer() = IntTensor("zero", {}, {0});
      *body.add_initializer() = IntTensor("one", {}, {1});
      AddNode(nodes, "Range", {"zero", limit, "one"}, {"range"});
      AddNode(nodes, "Add", {"range", "i"}, {"next"});
      AddNode(nodes, "SequenceInsert", {"s", "next"}, {"longer"});
    });
  };
  TestModel growing(17);
  Join(Collect(growing, ranges("i"), 7), "s", "y", 0);
  cases.push_back({"uneven_integers", growing, {{{Scalar(4)}, {I({6}, {1, 2, 3, 3, 4, 5})}}}});
  TestModel fixed(17);
  Join(Collect(fixed.Input(Tensor32("size", {}, 7)), ranges("size"), 7), "s", "y", 1, 1);
  cases.push_back(
      {"sizes_that_turn_out_equal",
       fixed,
       {{{Scalar(2), Scalar(3)}, {I({2, 3}, {0, 1, 2, 1, 2, 3})}}, {{Scalar(0), Scalar(2)}, {I({0, 2}, {})}}}});
}

// Appends rows[i] * i.
GraphProto WeightedRows() {
  return LoopBody([](GraphProto& body) {
    Nodes& nodes = *body.mutable_node();
    AddNode(nodes, "SequenceAt", {"rows", "i"}, {"row"});
    AddNode(nodes, "Cast", {"i"}, {"f"}, {IntAttribute("to", 1)});
    AddNode(nodes, "Mul", {"row", "f"}, {"next"});
    AddNode(nodes, "SequenceInsert", {"s", "next"}, {"longer"});
  });
}

void AddSplits(std::vector<SequenceCase>& cases) {
  const Tensor x = F({3, 2}, {0, 1, 2, 3, 4, 5});
  for (const int64_t keepdims : {0, 1}) {
    TestModel rows(17);
    rows.Input(Tensor32("x", {"n", "m"}));
    rows.Node("SplitToSequence", {"x"}, {"rows"}, {IntAttribute("axis", 0), IntAttribute("keepdims", keepdims)})
        .Node("SequenceLength", {"rows"}, {"count"})
        .Node("SequenceEmpty", {}, {"none"})
        .Node("Loop", {"count", "", "none"}, {"s"}, {GraphAttribute("body", WeightedRows())});
    Join(rows, "s", "y", 0, 1);
    const Dims dims = keepdims != 0 ? Dims{3, 1, 2} : Dims{3, 2};
    cases.push_back({keepdims != 0 ? "rows_with_their_axis" : "rows",
                     rows,
                     {{{x}, {F(dims, {0, 0, 2, 3, 8, 10})}}, {{F({0, 2}, {})}, {}, "index 0 is outside axis 0"}}});
  }
  TestModel columns(17);
  columns.Input(Tensor32("x", {"n", "m"})).Input(Tensor32("p", {}, 7));
  columns.Node("SplitToSequence", {"x"}, {"s"}, {IntAttribute("axis", -1), IntAttribute("keepdims", 0)});
  At(Length(columns, "s", "length"), "s", "p", "at");
  cases.push_back(
      {"columns",
       columns,
       {{{x, Scalar(1)}, {Scalar(2), F({3}, {1, 3, 5})}}, {{x, Scalar(2)}, {}, "index 2 is outside axis 0"}}});

  TestModel pairs(17);
  pairs.Input(Tensor32("x", {"n"})).Input(Tensor32("p", {}, 7)).Initializer(IntTensor("two", {}, {2}));
  At(Length(pairs.Node("SplitToSequence", {"x", "two"}, {"s"}), "s", "length"), "s", "p", "at");
  const Tensor five = F({5}, {1, 2, 3, 4, 5});
  cases.push_back({"pairs",
                   pairs,
                   {{{five, Scalar(1)}, {Scalar(3), F({2}, {3, 4})}},
                    {{five, Scalar(2)}, {Scalar(3), F({1}, {5})}},
                    {{F({4}, {1, 2, 3, 4}), Scalar(-1)}, {Scalar(2), F({2}, {3, 4})}},
                    {{five, Scalar(3)}, {}, "index 3 is outside axis 0"}}});

  TestModel chunks(17);
  chunks.Input(Tensor32("x", {"n", 2})).Input(Tensor32("k", {}, 7)).Initializer(IntTensor("last", {}, {-1}));
  At(Length(chunks.Node("SplitToSequence", {"x", "k"}, {"s"}), "s", "length"), "s", "last", "at");
  cases.push_back({"pieces_of_one_size",
                   chunks,
                   {{{x, Scalar(2)}, {Scalar(2), F({1, 2}, {4, 5})}},
                    {{x, Scalar(3)}, {Scalar(1), x}},
                    {{x, Scalar(INT64_MAX)}, {Scalar(1), x}},
                    {{x, Scalar(0)}, {}, "index 0 is outside axis 0"},
                    {{x, Scalar(-2)}, {}, "index -2 is outside axis 0"}}});

  TestModel pieces(17);
  pieces.Input(Tensor32("x", {"n", 2})).Input(Tensor32("sizes", {"q"}, 7)).Initializer(IntTensor("last", {}, {-1}));
  pieces.Node("SplitToSequence", {"x", "sizes"}, {"s"}, {IntAttribute("axis", 0)});
  At(Join(Length(pieces, "s", "length"), "s", "all", 0), "s", "last", "at");
  cases.push_back({"pieces_of_given_sizes",
                   pieces,
                   {{{x, I({2}, {1, 2})}, {Scalar(2), x, F({2, 2}, {2, 3, 4, 5})}},
                    {{x, I({3}, {2, 1, 0})}, {Scalar(3), x, F({0, 2}, {})}},
                    {{x, I({2}, {1, 1})}, {}, "cannot reshape [3] to [2]"},
                    {{x, I({2}, {3, 1})}, {}, "cannot reshape [3] to [4]"},
                    {{x, I({3}, {3, -1, 1})}, {}, "cannot reshape [3] to [5]"}}});
}

void AddEdits(std::vector<SequenceCase>& cases) {
  const Tensor x = F({3, 2}, {0, 1, 2, 3, 4, 5});
  for (const bool given : {true, false}) {
    TestModel erase(17);
    erase.Input(Tensor32("x", {"n", "m"}));
    if (given) erase.Input(Tensor32("p", {}, 7));
    erase.Node("SplitToSequence", {"x"}, {"s"}, {IntAttribute("keepdims", 0)});
    erase.Node("SequenceErase", {"s", given ? "p" : ""}, {"t"});
    Length(Join(erase, "t", "y", 0, 1), "t", "length");
    std::vector<SequenceRun> runs;
    if (given) {
      runs = {{{x, Scalar(1)}, {F({2, 2}, {0, 1, 4, 5}), Scalar(2)}},
              {{x, Scalar(-3)}, {F({2, 2}, {2, 3, 4, 5}), Scalar(2)}},
              {{x, Scalar(3)}, {}, "index 3 is outside axis 0"},
              {{x, Scalar(-4)}, {}, "index -4 is outside axis 0"}};
    } else {
      runs = {{{x}, {F({2, 2}, {0, 1, 2, 3}), Scalar(2)}},
              {{F({0, 2}, {})}, {}, "is 0, dim 0 of input \"x\"; node Gather"}};
    }
    cases.push_back({given ? "erased_at" : "erased_last", erase, runs});
  }
  TestModel uneven(17);
  uneven.Input(Tensor32("x", {"n"})).Input(Tensor32("p", {1}, 7)).Input(Tensor32("q", {}, 7));
  uneven.Initializer(IntTensor("two", {}, {2}));
  uneven.Node("SplitToSequence", {"x", "two"}, {"s"}).Node("SequenceErase", {"s", "p"}, {"t"});
  uneven.Node("SequenceInsert", {"t", "x", "q"}, {"u"});
  Length(Join(uneven, "u", "y", 0), "u", "length");
  const Tensor five = F({5}, {1, 2, 3, 4, 5});
  cases.push_back({"edited_uneven",
                   uneven,
                   {{{five, I({1}, {1}), Scalar(1)}, {F({8}, {1, 2, 1, 2, 3, 4, 5, 5}), Scalar(3)}},
                    {{five, I({1}, {-1}), Scalar(-2)}, {F({9}, {1, 2, 3, 4, 5, 1, 2, 3, 4}), Scalar(3)}},
                    {{five, I({1}, {0}), Scalar(2)}, {F({8}, {3, 4, 5, 1, 2, 3, 4, 5}), Scalar(3)}},
                    {{five, I({1}, {0}), Scalar(3)}, {}, "index 3 is outside axis 0"}}});

  TestModel insert(17);
  insert.Input(Tensor32("x", {"n", "m"})).Input(Tensor32("p", {}, 6)).Initializer(IntTensor("one", {}, {1}));
  insert.Node("SplitToSequence", {"x"}, {"s"}, {IntAttribute("keepdims", 0)}).Node("SequenceAt", {"s", "one"}, {"row"});
  Join(insert.Node("SequenceInsert", {"s", "row", "p"}, {"t"}), "t", "y", 0, 1);
  const auto at = [](int32_t value) { return Tensor::Of<int32_t>(DType::kI32, Dims{}, std::span(&value, 1)); };
  cases.push_back({"inserted_at",
                   insert,
                   {{{x, at(0)}, {F({4, 2}, {2, 3, 0, 1, 2, 3, 4, 5})}},
                    {{x, at(2)}, {F({4, 2}, {0, 1, 2, 3, 2, 3, 4, 5})}},
                    {{x, at(3)}, {F({4, 2}, {0, 1, 2, 3, 4, 5, 2, 3})}},
                    {{x, at(-1)}, {F({4, 2}, {0, 1, 2, 3, 2, 3, 4, 5})}},
                    {{x, at(-3)}, {F({4, 2}, {2, 3, 0, 1, 2, 3, 4, 5})}},
                    {{x, at(4)}, {}, "index 4 is outside axis 0"},
                    {{x, at(-4)}, {}, "is outside axis 0"}}});
}

void AddMaps(std::vector<SequenceCase>& cases) {
  // Rows times the sum of a tensor, and the first entries of each row, as many as its first entry says.
  GraphProto body;
  *body.add_input() = Tensor32("e", {"m"});
  *body.add_input() = Tensor32("w", {"k"});
  *body.add_initializer() = IntTensor("zero", {1}, {0});
  *body.add_initializer() = IntTensor("one", {1}, {1});
  Nodes& nodes = *body.mutable_node();
  AddNode(nodes, "ReduceSum", {"w"}, {"sum"}, {IntAttribute("keepdims", 0)});
  AddNode(nodes, "Mul", {"e", "sum"}, {"scaled"});
  AddNode(nodes, "Slice", {"e", "zero", "one"}, {"head"});
  AddNode(nodes, "Cast", {"head"}, {"count"}, {IntAttribute("to", 7)});
  AddNode(nodes, "Slice", {"e", "zero", "count"}, {"part"});
  for (const char* name : {"scaled", "part"}) body.add_output()->set_name(name);
  TestModel map(17);
  map.Input(Tensor32("x", {"n", "m"})).Input(Tensor32("w", {"k"}));
  map.Node("SplitToSequence", {"x"}, {"s"}, {IntAttribute("keepdims", 0)})
      .Node("SequenceMap", {"s", "w"}, {"t", "u"}, {GraphAttribute("body", body)});
  Join(Join(map, "t", "y", 0, 1), "u", "z", 0);
  cases.push_back({"mapped",
                   map,
                   {{{F({2, 2}, {1, 3, 2, 4}), F({2}, {1, 2})}, {F({2, 2}, {3, 9, 6, 12}), F({3}, {1, 2, 4})}},
                    {{F({0, 2}, {}), F({2}, {1, 2})}, {}, "index 0 is outside axis 0"}}});

  GraphProto sum;
  *sum.add_input() = Tensor32("a", {"m"});
  *sum.add_input() = Tensor32("b", {"m"});
  AddNode(*sum.mutable_node(), "Add", {"a", "b"}, {"c"});
  AddNode(*sum.mutable_node(), "Shape", {"c"}, {"shape"});
  for (const char* name : {"c", "shape"}) sum.add_output()->set_name(name);
  TestModel both(17);
  both.Input(Tensor32("x", {"n", "m"})).Input(Tensor32("y", {"k", "m"}));
  both.Node("SplitToSequence", {"x"}, {"s"}, {IntAttribute("keepdims", 0)})
      .Node("SplitToSequence", {"y"}, {"t"}, {IntAttribute("keepdims", 0)})
      .Node("SequenceMap", {"s", "t"}, {"u", "shapes"}, {GraphAttribute("body", sum)});
  Join(Join(both, "u", "z", 0, 1), "shapes", "all", 0);
  const Tensor x = F({2, 2}, {1, 3, 2, 4});
  cases.push_back({"mapped_together",
                   both,
                   {{{x, x}, {F({2, 2}, {2, 6, 4, 8}), I({2}, {2, 2})}},
                    {{x, F({1, 2}, {1, 1})}, {}, "is 1, dim 0 of input \"y\"; "}}});
}

void AddBranches(std::vector<SequenceCase>& cases) {
  const auto branch = [](std::initializer_list<std::string> inputs) {
    GraphProto graph;
    AddNode(*graph.mutable_node(), "SequenceConstruct", inputs, {"made"});
    graph.add_output()->set_name("made");
    return graph;
  };
  TestModel model(17);
  model.Input(Tensor32("c", {}, 9)).Input(Tensor32("x", {"n"})).Input(Tensor32("y", {"m"}));
  model.Node("If", {"c"}, {"s"},
             {GraphAttribute("then_branch", branch({"x"})), GraphAttribute("else_branch", branch({"x", "y", "x"}))});
  Length(Join(model, "s", "z", 0), "s", "length");
  const auto flag = [](bool value) { return Tensor::Of<bool>(DType::kBool, Dims{}, std::span(&value, 1)); };
  const Tensor x = F({2}, {1, 2}), y = F({1}, {3});
  cases.push_back(
      {"branches_of_different_lengths",
       model,
       {{{flag(true), x, y}, {x, Scalar(1)}}, {{flag(false), x, y}, {F({5}, {1, 2, 3, 1, 2}), Scalar(3)}}}});
}

}  // namespace

std::vector<SequenceCase> SequenceCases() {
  std::vector<SequenceCase> cases;
  AddFlatSequenceCases(cases);
  AddAppends(cases);
  AddLoops(cases);
  AddUneven(cases);
  AddSplits(cases);
  AddEdits(cases);
  AddMaps(cases);
  AddBranches(cases);
  return cases;
}

}  // namespace kiln::onnx

// Sequences that a Loop makes, an element per turn.
#include "tests/vm-worker/onnx/sequence_cases.h"
#include "tests/vm-worker/onnx/sequence_models.h"

namespace kiln::onnx {
namespace {

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

void AddBranchesAndReads(std::vector<SequenceCase>& cases) {
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
}

// More trips than a Loop is copied out for.
void AddManyTrips(std::vector<SequenceCase>& cases) {
  const Tensor x = F({2}, {1, 5});
  TestModel many(17);
  many.Input(Tensor32("x", {"n"})).Initializer(IntTensor("trips", {}, {5000})).Initializer(IntTensor("last", {}, {-1}));
  many.Node("SequenceEmpty", {}, {"none"})
      .Node("Loop", {"trips", "", "none"}, {"s"}, {GraphAttribute("body", Shifted())});
  At(Length(many, "s", "length"), "s", "last", "at");
  cases.push_back({"many_known_trips", many, {{{x}, {Scalar(5000), F({2}, {5000, 5004})}}}});
}

// Runs while a total is below a limit; the elements are scalars.
void AddUntilACondition(std::vector<SequenceCase>& cases) {
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
}

// A loop in a loop: x + i once, then i times the inner count.
void AddNestedLoops(std::vector<SequenceCase>& cases) {
  const Tensor x = F({2}, {1, 5});
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

}  // namespace

void AddGrownSequenceCases(std::vector<SequenceCase>& cases) {
  AddAppends(cases);
  AddBranchesAndReads(cases);
  AddManyTrips(cases);
  AddUntilACondition(cases);
  AddNestedLoops(cases);
  AddUneven(cases);
}

}  // namespace kiln::onnx

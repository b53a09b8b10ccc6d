// Sequences that tensors are split into, what is done with them, and sequences of branches.
#include "tests/vm-worker/onnx/sequence_cases.h"
#include "tests/vm-worker/onnx/sequence_models.h"

namespace kiln::onnx {
namespace {

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

void AddSplitSequenceCases(std::vector<SequenceCase>& cases) {
  AddSplits(cases);
  AddEdits(cases);
  AddMaps(cases);
  AddBranches(cases);
}

}  // namespace kiln::onnx

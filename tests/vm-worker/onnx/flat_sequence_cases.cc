// Models over run-time sequences whose elements differ along several axes. What they answer is worked out here, element
// by element.
#include "tests/vm-worker/onnx/sequence_cases.h"
#include "tests/vm-worker/onnx/sequence_models.h"

namespace kiln::onnx {
namespace {

Tensor Counted(const Dims& dims) {
  Tensor tensor = Tensor::Allocate(DType::kF32, dims);
  for (int64_t i = 0; i < NumElements(dims); ++i) tensor.ref.as<float>()[i] = static_cast<float>(i);
  return tensor;
}

// Calls `visit` with every position of a tensor of these dims, in row-major order.
void ForEach(const Dims& dims, const std::function<void(const Dims&)>& visit) {
  Dims at = dims;
  for (int64_t flat = 0; flat < NumElements(dims); ++flat) {
    int64_t rest = flat;
    for (int d = dims.rank() - 1; d >= 0; --d) {
      at[d] = rest % dims[d];
      rest /= dims[d];
    }
    visit(at);
  }
}
float& ElementAt(const Tensor& tensor, const Dims& at) {
  int64_t flat = 0;
  for (int d = 0; d < at.rank(); ++d) flat = flat * tensor.dims()[d] + at[d];
  return tensor.ref.as<float>()[flat];
}

// The first rows and columns: entries of axes 0 and 1.
Tensor Box(const Tensor& x, int64_t rows, int64_t columns) {
  Dims dims = x.dims();
  dims[0] = rows;
  dims[1] = columns;
  Tensor box = Tensor::Allocate(DType::kF32, dims);
  ForEach(dims, [&](const Dims& at) { ElementAt(box, at) = ElementAt(x, at); });
  return box;
}
Tensor Joined(const std::vector<Tensor>& parts, int axis) {
  Dims dims = parts[0].dims();
  for (size_t i = 1; i < parts.size(); ++i) dims[axis] += parts[i].dims()[axis];
  Tensor whole = Tensor::Allocate(DType::kF32, dims);
  int64_t start = 0;
  for (const Tensor& part : parts) {
    ForEach(part.dims(), [&](const Dims& at) {
      Dims to = at;
      to[axis] += start;
      ElementAt(whole, to) = ElementAt(part, at);
    });
    start += part.dims()[axis];
  }
  return whole;
}
Tensor Stacked(const std::vector<Tensor>& parts, int axis) {
  std::vector<Tensor> planes;
  for (const Tensor& part : parts) {
    Dims dims;
    for (int d = 0; d <= part.dims().rank(); ++d) {
      if (d == axis) dims.push_back(1);
      if (d < part.dims().rank()) dims.push_back(part.dims()[d]);
    }
    Tensor plane = Tensor::Allocate(DType::kF32, dims);
    std::copy_n(part.ref.as<float>(), NumElements(dims), plane.ref.as<float>());
    planes.push_back(plane);
  }
  return Joined(planes, axis);
}

// The sequence "s" of the boxes that the lists "rows" and "columns" say, of x.
TestModel Boxes(std::vector<TestDim> x) {
  TestModel model(17);
  model.Input(Tensor32("x", std::move(x))).Input(Tensor32("rows", {"k"}, 7)).Input(Tensor32("columns", {"k"}, 7));
  model.Initializer(IntTensor("from", {2}, {0, 0})).Initializer(IntTensor("first", {1}, {0}));
  model.Node("Size", {"rows"}, {"trips"}).Node("SequenceEmpty", {}, {"none"});
  return model.Node("Loop", {"trips", "", "none"}, {"s"},
                    {GraphAttribute("body", LoopBody([](GraphProto& body) {
                                      Nodes& nodes = *body.mutable_node();
                                      AddNode(nodes, "Gather", {"rows", "i"}, {"r"});
                                      AddNode(nodes, "Gather", {"columns", "i"}, {"c"});
                                      AddNode(nodes, "Unsqueeze", {"r", "first"}, {"r1"});
                                      AddNode(nodes, "Unsqueeze", {"c", "first"}, {"c1"});
                                      AddNode(nodes, "Concat", {"r1", "c1"}, {"to"}, {IntAttribute("axis", 0)});
                                      AddNode(nodes, "Slice", {"x", "from", "to"}, {"part"});
                                      AddNode(nodes, "SequenceInsert", {"s", "part"}, {"longer"});
                                    }))});
}

struct Sizes {
  std::vector<int64_t> rows, columns;
  std::vector<Tensor> Of(const Tensor& x) const {
    std::vector<Tensor> boxes;
    for (size_t i = 0; i < rows.size(); ++i) boxes.push_back(Box(x, rows[i], columns[i]));
    return boxes;
  }
  std::vector<Tensor> Inputs(const Tensor& x) const {
    const Dims dims{static_cast<int64_t>(rows.size())};
    return {x, I(dims, rows), I(dims, columns)};
  }
};

void AddConcats(std::vector<SequenceCase>& cases) {
  const Tensor x = Counted({3, 4, 2});
  struct Case {
    std::string name;
    int axis;
    bool new_axis;
    std::vector<Sizes> good;
    std::vector<std::pair<Sizes, std::string>> bad;  // and what the error says of the node "y"
  };
  const Case concats[] = {{"boxes_below",
                           0,
                           false,
                           {{{1, 3, 2}, {4, 4, 4}}, {{2, 0, 1}, {3, 3, 3}}, {{3}, {1}}},
                           {{{{1, 2}, {2, 3}}, "dim 1 of inputs 0 and 1 of Concat along axis 0 differ: 3 and 2"}}},
                          {"boxes_beside",
                           1,
                           false,
                           {{{2, 2, 2}, {1, 4, 2}}, {{3, 3}, {0, 3}}, {{0, 0}, {1, 2}}},
                           {{{{1, 2}, {2, 2}}, "dim 0 of inputs 0 and 1 of Concat along axis 1 differ: 2 and 1"}}},
                          {"boxes_behind",
                           2,
                           false,
                           {{{2, 2}, {3, 3}}, {{3}, {4}}},
                           {{{{1, 2}, {2, 2}}, "dim 0 of inputs 0 and 1 of Concat along axis 2 differ: 2 and 1"},
                            {{{2, 2}, {1, 2}}, "dim 1 of inputs 0 and 1 of Concat along axis 2 differ: 2 and 1"}}},
                          {"boxes_on_top",
                           0,
                           true,
                           {{{2, 2}, {3, 3}}, {{1}, {2}}},
                           {{{{2, 2}, {3, 2}}, "dim 1 of inputs 0 and 1 of Concat along axis 3 differ: 3 and 2"},
                            {{{0, 0}, {3, 2}}, "dim 1 of inputs 0 and 1 of Concat along axis 3 differ: 3 and 2"}}},
                          {"boxes_across",
                           2,
                           true,
                           {{{2, 2, 2}, {1, 1, 1}}},
                           {{{{1, 3}, {3, 1}}, "dim 0 of inputs 0 and 1 of Concat along axis 3 differ: 3 and 1"}}}};
  for (const Case& concat : concats) {
    TestModel model = Boxes({"n", "m", 2});
    Join(model, "s", "y", concat.axis, concat.new_axis);
    std::vector<SequenceRun> runs;
    for (const Sizes& sizes : concat.good)
      runs.push_back(
          {sizes.Inputs(x), {concat.new_axis ? Stacked(sizes.Of(x), concat.axis) : Joined(sizes.Of(x), concat.axis)}});
    for (const auto& [sizes, error] : concat.bad) runs.push_back({sizes.Inputs(x), {}, "node Concat \"y\": " + error});
    runs.push_back({Sizes{}.Inputs(x), {}, "index 0 is outside axis 0"});
    cases.push_back({concat.name, model, runs});
  }
}

void AddEdits(std::vector<SequenceCase>& cases) {
  const Tensor x = Counted({3, 4});
  TestModel model = Boxes({"n", "m"});
  model.Input(Tensor32("p", {}, 7)).Input(Tensor32("q", {}, 7)).Input(Tensor32("z", {"a", "b"}));
  At(model, "s", "p", "at").Node("SequenceErase", {"s", "p"}, {"t"});
  model.Node("SequenceInsert", {"t", "z", "q"}, {"u"}).Node("SequenceLength", {"u"}, {"length"}).Output("length");
  model.Node("SequenceAt", {"u", "q"}, {"new"}).Output("new").Node("SequenceAt", {"u", "p"}, {"there"}).Output("there");
  const Sizes sizes{{2, 0, 3}, {4, 1, 2}};
  const Tensor z = Counted({2, 5});
  const auto inputs = [&](int64_t p, int64_t q) {
    std::vector<Tensor> all = sizes.Inputs(x);
    all.insert(all.end(), {Scalar(p), Scalar(q), z});
    return all;
  };
  const std::vector<Tensor> boxes = sizes.Of(x);
  const Tensor three = Scalar(3);
  cases.push_back({"boxes_edited",
                   model,
                   {{inputs(0, 1), {boxes[0], three, z, boxes[1]}},
                    {inputs(2, 0), {boxes[2], three, z, boxes[1]}},
                    {inputs(-2, 2), {boxes[1], three, z, boxes[2]}},
                    {inputs(3, 0), {}, "index 3 is outside axis 0"}}});
}

// Pieces along one axis, and rows of a tensor: what is inserted among them differs along another.
void AddWidened(std::vector<SequenceCase>& cases) {
  const Tensor x = Counted({2, 3, 2}), z = Counted({4, 1, 2});
  for (const int64_t axis : {0, 1}) {
    TestModel pieces(17);
    pieces.Input(Tensor32("x", {"n", "m", 2})).Input(Tensor32("sizes", {"k"}, 7)).Input(Tensor32("z", {"a", "b", 2}));
    pieces.Input(Tensor32("p", {}, 7)).Node("SplitToSequence", {"x", "sizes"}, {"t"}, {IntAttribute("axis", axis)});
    pieces.Node("SequenceInsert", {"t", "z"}, {"s"}).Node("SequenceAt", {"s", "p"}, {"y"}).Output("y");
    const auto part = [&](int64_t start, int64_t size) {
      Dims dims = x.dims();
      dims[static_cast<int>(axis)] = size;
      Tensor piece = Tensor::Allocate(DType::kF32, dims);
      ForEach(dims, [&](const Dims& at) {
        Dims from = at;
        from[static_cast<int>(axis)] += start;
        ElementAt(piece, at) = ElementAt(x, from);
      });
      return piece;
    };
    const int64_t rest = axis == 0 ? 1 : 2;
    const Tensor sizes = I({3}, {1, 0, rest});
    const auto inputs = [&](int64_t p) { return std::vector<Tensor>{x, sizes, z, Scalar(p)}; };
    cases.push_back({"pieces_and_another_" + std::to_string(axis),
                     pieces,
                     {{inputs(0), {part(0, 1)}},
                      {inputs(1), {part(1, 0)}},
                      {inputs(2), {part(1, rest)}},
                      {inputs(3), {z}},
                      {inputs(-5), {}, "index -5 is outside axis 0"}}});
  }
  TestModel planes(17);
  planes.Input(Tensor32("x", {"n", "m", "l"})).Input(Tensor32("z", {"a", "b"})).Input(Tensor32("p", {}, 7));
  planes.Node("SplitToSequence", {"x"}, {"t"}, {IntAttribute("keepdims", 0)});
  planes.Node("SequenceInsert", {"t", "z"}, {"s"}).Node("SequenceAt", {"s", "p"}, {"y"}).Output("y");
  const Tensor other = Counted({1, 5});
  Tensor second = Tensor::Allocate(DType::kF32, {3, 2});
  for (int64_t i = 0; i < 6; ++i) second.ref.as<float>()[i] = static_cast<float>(6 + i);
  cases.push_back(
      {"planes_and_another", planes, {{{x, other, Scalar(1)}, {second}}, {{x, other, Scalar(-1)}, {other}}}});
}

}  // namespace

void AddFlatSequenceCases(std::vector<SequenceCase>& cases) {
  AddConcats(cases);
  AddEdits(cases);
  AddWidened(cases);
}

}  // namespace kiln::onnx

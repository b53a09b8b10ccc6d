#include "vm-worker/onnx/flat_sequence.h"

namespace kiln::onnx {
namespace {

// Which of several parts each of the places that they fill lies in. `sizes` are the parts' sizes, `total` their sum.
ValueId PartOfPlace(SequenceSteps& steps, ValueId sizes, ValueId total) {
  // A one where a part begins; parts of nothing begin where the next one does, the last of them behind the end.
  const ValueId one = steps.Ints({1});
  const ValueId places = steps.Do(TensorOp::kExpand, {steps.Ints({0}), steps.Add(total, one)});
  const ValueId ones = steps.Do(TensorOp::kExpand, {one, steps.DimVector(sizes, 0)});
  Attributes adds;
  adds.Set("axis", int64_t{0});
  adds.Set("reduction", std::string("add"));
  const ValueId begins = steps.Do(TensorOp::kScatterElements, {places, steps.Offsets(sizes), ones}, std::move(adds));
  const ValueId begun = steps.Do(TensorOp::kCumSum, {begins, steps.builder().EmitInt(0)});
  return steps.Sub(steps.Rows(begun, steps.Ints({0}), total), one);
}

// How the elements of a joined sequence lie in memory: `outer` places before the open axis, `inner` behind it.
struct Blocks {
  ValueId outer, inner, block;  // i64[1]; block = outer * inner
  ValueId sizes;                // along the open axis
};

ValueId Remainder(SequenceSteps& steps, ValueId a, ValueId b) {
  return steps.Do(TensorOp::kMod, {a, b});
}

// Per place of the flat data, the place of the same element in the joined data.
ValueId PlacesInJoined(SequenceSteps& steps, const Blocks& blocks) {
  const ValueId counts = steps.Mul(blocks.sizes, blocks.block);
  const ValueId total = steps.Total(counts);
  const ValueId part = PartOfPlace(steps, counts, total);
  const ValueId start = steps.Gather(steps.Offsets(blocks.sizes), part);
  const ValueId row = steps.Mul(steps.Gather(blocks.sizes, part), blocks.inner);
  const ValueId place = steps.Sub(steps.Count(steps.Scalar64(total)), steps.Mul(start, blocks.block));
  const ValueId inside = Remainder(steps, place, row);
  const ValueId along = steps.Add(start, steps.Div(inside, blocks.inner));
  return steps.Add(steps.Mul(along, blocks.block),
                   steps.Add(steps.Mul(steps.Div(place, row), blocks.inner), Remainder(steps, inside, blocks.inner)));
}

// The inverse: per place of the joined data, the place in the flat data.
ValueId PlacesInFlat(SequenceSteps& steps, const Blocks& blocks) {
  const ValueId rows = steps.Total(blocks.sizes);
  const ValueId part_of_row = PartOfPlace(steps, blocks.sizes, rows);
  const ValueId place = steps.Count(steps.Scalar64(steps.Mul(rows, blocks.block)));
  const ValueId row = steps.Div(place, blocks.block);
  const ValueId part = steps.Gather(part_of_row, row);
  const ValueId start = steps.Gather(steps.Offsets(blocks.sizes), part);
  const ValueId size = steps.Gather(blocks.sizes, part);
  const ValueId before = Remainder(steps, steps.Div(place, blocks.inner), blocks.outer);
  const ValueId along = steps.Add(steps.Mul(before, size), steps.Sub(row, start));
  return steps.Add(steps.Mul(start, blocks.block),
                   steps.Add(steps.Mul(along, blocks.inner), Remainder(steps, place, blocks.inner)));
}

ValueId Product(SequenceSteps& steps, ValueId vector) {
  return steps.Reduce(TensorOp::kReduceProd, vector, {0}, true);
}

ValueList FlatOfStacked(SequenceSteps& steps, const RunTimeSequence& held) {
  const ValueId shape = steps.Slice(steps.Shape(held.data), 0, 1, kToTheEnd);
  const ValueId length = steps.DimVector(held.data, 0);
  const ValueId rank = steps.Ints({static_cast<int64_t>(held.form.element.size())});
  return {steps.Reshape(held.data, {-1}), steps.Do(TensorOp::kExpand, {Product(steps, shape), length}),
          steps.Do(TensorOp::kExpand, {shape, steps.Concat({length, rank}, 0)})};
}

ValueList FlatOfJoined(SequenceSteps& steps, const RunTimeSequence& held) {
  const int rank = static_cast<int>(held.form.element.size()), open = held.form.open;
  const ValueId column = steps.Concat({steps.DimVector(held.sizes, 0), steps.Ints({1})}, 0);
  Blocks blocks{steps.Ints({1}), steps.Ints({1}), steps.Ints({1}), held.sizes};
  ValueList columns;
  for (int d = 0, next = 1; d < rank; ++d) {
    if (d == open) {
      columns.push_back(steps.Unsqueeze(held.sizes, {1}));
      continue;
    }
    const ValueId size = steps.DimVector(held.data, next++);
    columns.push_back(steps.Do(TensorOp::kExpand, {size, column}));
    ValueId& side = d < open ? blocks.outer : blocks.inner;
    side = steps.Mul(side, size);
    blocks.block = steps.Mul(blocks.block, size);
  }
  ValueId data = steps.Reshape(held.data, {-1});
  if (open > 0) data = steps.Gather(data, PlacesInJoined(steps, blocks));
  return {data, steps.Mul(held.sizes, blocks.block), steps.Concat(std::move(columns), 1)};
}

// A zero (i64[1]). Fails as the join of the elements does where their shapes differ but along `axis`, or, of -1, at
// all: two tensors of no elements are joined, which have the largest and the smallest of each size.
ValueId ZeroIfJoined(SequenceSteps& steps, ValueId most, ValueId least, int64_t axis, int rank) {
  const auto empty = [&](ValueId sizes) {
    if (axis < 0) {
      sizes = steps.Concat({sizes, steps.Ints({0})}, 0);
    } else {
      std::vector<int64_t> kept(static_cast<size_t>(rank), 1);
      kept[static_cast<size_t>(axis)] = 0;
      sizes = steps.Mul(sizes, steps.Ints(std::move(kept)));
    }
    return steps.Do(TensorOp::kExpand, {steps.builder().EmitInt(0), sizes});
  };
  const ValueId joined = steps.Concat({empty(most), empty(least)}, axis < 0 ? rank : axis);
  // By way of its elements, of which there are none: its shape alone would be known without the join.
  return steps.Reduce(TensorOp::kReduceMin, steps.Concat({steps.Reshape(joined, {-1}), steps.Ints({0})}, 0), {0}, true);
}

// The shape that all elements have but along `axis` (none: -1), and the data. Fails where they differ.
struct Common {
  ValueId shape, data;
};
Common CommonShape(SequenceSteps& steps, const RunTimeSequence& held, int64_t axis) {
  const int rank = static_cast<int>(held.form.element.size());
  const ValueId shapes = steps.NotEmpty(held.shapes);
  const ValueId most = steps.Reduce(TensorOp::kReduceMax, shapes, {0}, false);
  const ValueId least = steps.Reduce(TensorOp::kReduceMin, shapes, {0}, false);
  const ValueId zero = ZeroIfJoined(steps, most, least, axis, rank);
  return {most, steps.Rows(held.data, zero, steps.Ints({kToTheEnd}))};
}

}  // namespace

ValueList FlatOfElements(SequenceSteps& steps, const ValueList& elements) {
  ValueList data, counts, shapes;
  for (const ValueId element : elements) {
    data.push_back(steps.Reshape(element, {-1}));
    counts.push_back(steps.DimVector(data.back(), 0));
    shapes.push_back(steps.Unsqueeze(steps.Shape(element), {0}));
  }
  const auto joined = [&](ValueList parts) { return parts.size() == 1 ? parts[0] : steps.Concat(std::move(parts), 0); };
  return {joined(std::move(data)), joined(std::move(counts)), joined(std::move(shapes))};
}

ValueList FlatOf(SequenceSteps& steps, const RunTimeSequence& held) {
  return held.form.is_joined() ? FlatOfJoined(steps, held) : FlatOfStacked(steps, held);
}

ValueId JoinedOfFlat(SequenceSteps& steps, const RunTimeSequence& held, int64_t axis) {
  const int64_t rank = static_cast<int64_t>(held.form.element.size());
  const Common common = CommonShape(steps, held, axis);
  const ValueId before = steps.Slice(common.shape, 0, 0, axis), behind = steps.Slice(common.shape, 0, axis + 1, rank);
  Blocks blocks{axis == 0 ? steps.Ints({1}) : Product(steps, before),
                axis == rank - 1 ? steps.Ints({1}) : Product(steps, behind), kNoValue,
                steps.Squeeze(steps.Slice(held.shapes, 1, axis, axis + 1), {1})};
  blocks.block = steps.Mul(blocks.outer, blocks.inner);
  const ValueId data = axis == 0 ? common.data : steps.Gather(common.data, PlacesInFlat(steps, blocks));
  return steps.ReshapeTo(data, steps.Concat({steps.Total(blocks.sizes), before, behind}, 0));
}

ValueId StackedOfFlat(SequenceSteps& steps, const RunTimeSequence& held) {
  const Common common = CommonShape(steps, held, -1);
  return steps.ReshapeTo(common.data, steps.Concat({steps.DimVector(held.shapes, 0), common.shape}, 0));
}

}  // namespace kiln::onnx

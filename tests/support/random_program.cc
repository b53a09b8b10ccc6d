#include "tests/support/random_program.h"

#include <algorithm>

#include "common/base/check.h"
#include "tests/support/random_builder.h"

namespace kiln::testing {
namespace {

class ProgramGenerator : private RandomBuilder {
 public:
  using RandomBuilder::RandomBuilder;

  Program Run() {
    program_.name = Name("program");
    program_.functions.push_back({.name = "main", .values = {}, .regions = {}});
    for (const char* name : {"a", "b", "c"}) sizes_.push_back(*program_.symbols.AddSymbol(name, {0, 64}, 1));
    sizes_.push_back(*program_.symbols.AddSymbol("d", {1, 64}, 1));
    sizes_.push_back(*program_.symbols.AddSymbol("e", {0, 64}, 8));
    NewRegion();
    for (int i = 1 + Below(3); i > 0; --i) AddInput();
    // From here on only sizes that an input shows: others have no value when they are asked for.
    std::erase_if(sizes_, [&](Dim size) {
      return std::none_of(region().inputs.begin(), region().inputs.end(), [&](ValueId input) {
        return std::find(DimsOf(input).begin(), DimsOf(input).end(), size) != DimsOf(input).end();
      });
    });
    for (int64_t size : {0, 1, 3}) sizes_.push_back(Dim::Const(size));
    FillRegion(options_.nodes);
    region().outputs = Sinks();
    KILN_CHECK(VerifyProgram(program_).has_value());
    return std::move(program_);
  }

 private:
  // --- one op each; false when no operand fits ---
  bool Unary() {
    const ValueId x = PickFloat();
    if (x == kNoValue) return false;
    const TensorOp ops[] = {TensorOp::kTanh,      TensorOp::kSigmoid,  TensorOp::kRelu,     TensorOp::kAbs,
                            TensorOp::kNeg,       TensorOp::kErf,      TensorOp::kSoftsign, TensorOp::kHardSigmoid,
                            TensorOp::kLeakyRelu, TensorOp::kIdentity, TensorOp::kGelu};
    const TensorOp op = Choose(ops);
    Attributes attributes;
    if (op == TensorOp::kLeakyRelu) attributes.Set("alpha", 0.1);
    Emit(op, {x}, Desc(x), std::move(attributes));
    return true;
  }

  std::optional<std::vector<Dim>> Broadcast(const std::vector<Dim>& a, const std::vector<Dim>& b) {
    std::vector<Dim> dims(std::max(a.size(), b.size()), Dim::Const(1));
    for (size_t i = 0; i < dims.size(); ++i) {
      const Dim x = i < a.size() ? a[a.size() - 1 - i] : Dim::Const(1);
      const Dim y = i < b.size() ? b[b.size() - 1 - i] : Dim::Const(1);
      if (x != y && x != Dim::Const(1) && y != Dim::Const(1)) return std::nullopt;
      dims[dims.size() - 1 - i] = x == Dim::Const(1) ? y : x;
    }
    return dims;
  }

  bool Binary() {
    const ValueId x = Pick([&](ValueId id) { return Desc(id).dtype != DType::kBool; });
    if (x == kNoValue) return false;
    ValueId y = Pick([&](ValueId id) { return Desc(id).dtype == Desc(x).dtype && Broadcast(DimsOf(x), DimsOf(id)); });
    if (OneIn(4)) y = EmitScalar(Desc(x).dtype);
    const auto dims = *Broadcast(DimsOf(x), DimsOf(y));
    const TensorOp arithmetic[] = {TensorOp::kAdd, TensorOp::kSub, TensorOp::kMul, TensorOp::kMin, TensorOp::kMax};
    const TensorOp comparisons[] = {TensorOp::kLess, TensorOp::kGreater, TensorOp::kEqual, TensorOp::kLessOrEqual};
    const bool compare = OneIn(4);
    Emit(compare ? Choose(comparisons) : Choose(arithmetic), {x, y},
         MakeDesc(compare ? DType::kBool : Desc(x).dtype, dims));
    return true;
  }

  bool Logic() {
    const ValueId x = Pick([&](ValueId id) { return Desc(id).dtype == DType::kBool; });
    if (x == kNoValue) return false;
    const ValueId y =
        Pick([&](ValueId id) { return Desc(id).dtype == DType::kBool && Broadcast(DimsOf(x), DimsOf(id)); });
    const TensorOp ops[] = {TensorOp::kAnd, TensorOp::kOr, TensorOp::kXor};
    if (OneIn(3)) {
      Emit(TensorOp::kNot, {x}, Desc(x));
    } else {
      Emit(Choose(ops), {x, y}, MakeDesc(DType::kBool, *Broadcast(DimsOf(x), DimsOf(y))));
    }
    return true;
  }

  bool Where() {
    const ValueId condition = Pick([&](ValueId id) { return Desc(id).dtype == DType::kBool; });
    if (condition == kNoValue) return false;
    const ValueId x = Pick([&](ValueId id) { return Broadcast(DimsOf(condition), DimsOf(id)).has_value(); });
    const ValueId y = EmitScalar(Desc(x).dtype);
    Emit(TensorOp::kWhere, {condition, x, y}, MakeDesc(Desc(x).dtype, *Broadcast(DimsOf(condition), DimsOf(x))));
    return true;
  }

  bool Cast() {
    const ValueId x = Pick([](ValueId) { return true; });
    const DType types[] = {DType::kF32, DType::kF32, DType::kF64, DType::kF16, DType::kI64, DType::kI32, DType::kBool};
    const DType to = options_.only_f32 ? DType::kF32 : Choose(types);
    Emit(TensorOp::kCast, {x}, MakeDesc(to, DimsOf(x)), With("to", static_cast<int64_t>(to)));
    return true;
  }

  bool Transpose() {
    const ValueId x = PickRanked();
    if (x == kNoValue) return false;
    std::vector<int64_t> perm;
    for (int i = 0; i < Desc(x).rank(); ++i) perm.push_back(i);
    std::shuffle(perm.begin(), perm.end(), random_);
    std::vector<Dim> dims;
    for (int64_t axis : perm) dims.push_back(DimsOf(x)[static_cast<size_t>(axis)]);
    Emit(TensorOp::kTranspose, {x}, MakeDesc(Desc(x).dtype, dims), With("perm", perm));
    return true;
  }

  // Merges two neighbouring dims, or splits off a 1.
  bool Reshape() {
    const ValueId x = Pick([&](ValueId id) { return Desc(id).rank() >= 1 && Desc(id).rank() < 6; });
    if (x == kNoValue) return false;
    std::vector<Dim> dims = DimsOf(x);
    const size_t axis = static_cast<size_t>(Axis(x));
    if (axis + 1 < dims.size()) {
      dims[axis] = symbols().Mul(dims[axis], dims[axis + 1]);
      dims.erase(dims.begin() + static_cast<ptrdiff_t>(axis) + 1);
    } else {
      dims.insert(dims.begin() + static_cast<ptrdiff_t>(axis), Dim::Const(1));
    }
    const ValueId shape = EmitShape(dims);
    Emit(TensorOp::kReshape, {x, shape}, MakeDesc(Desc(x).dtype, dims), With("allowzero", int64_t{1}));
    return true;
  }

  bool Unsqueeze() {
    const ValueId x = Pick([&](ValueId id) { return Desc(id).rank() < 6; });
    if (x == kNoValue) return false;
    const int axis = Below(Desc(x).rank() + 1);
    std::vector<Dim> dims = DimsOf(x);
    dims.insert(dims.begin() + axis, Dim::Const(1));
    const ValueId axes = EmitInts({axis});
    const ValueId y = Emit(TensorOp::kUnsqueeze, {x, axes}, MakeDesc(Desc(x).dtype, dims));
    if (OneIn(3)) Emit(TensorOp::kSqueeze, {y, axes}, Desc(x));
    return true;
  }

  bool Slice() {
    const ValueId x = PickRanked();
    if (x == kNoValue) return false;
    const int axis = Axis(x);
    const Dim size = DimsOf(x)[static_cast<size_t>(axis)];
    std::vector<Dim> dims = DimsOf(x);
    int64_t start = 0, end = INT64_MAX, step = 1;
    Dim& result = dims[static_cast<size_t>(axis)];
    switch (Below(3)) {
      case 0:  // all but the first `start`
        start = Below(3);
        result = symbols().Sub(size, symbols().Min(Dim::Const(start), size));
        break;
      case 1:  // the first `end`, every `step`-th
        end = Below(5);
        step = 1 + Below(2);
        result = symbols().CeilDiv(symbols().Min(Dim::Const(end), size), Dim::Const(step));
        break;
      case 2:  // reversed
        start = -1;
        end = INT64_MIN;
        step = -1;
        break;
    }
    const ValueId starts = EmitInts({start}), ends = EmitInts({end}), axes = EmitInts({axis}), steps = EmitInts({step});
    Emit(TensorOp::kSlice, {x, starts, ends, axes, steps}, MakeDesc(Desc(x).dtype, dims));
    return true;
  }

  bool Expand() {
    const ValueId x = Pick([&](ValueId id) { return Desc(id).rank() < 5; });
    if (x == kNoValue) return false;
    std::vector<Dim> dims = DimsOf(x);
    for (Dim& dim : dims) {
      if (dim == Dim::Const(1) && OneIn(2)) dim = AnySize();
    }
    dims.insert(dims.begin(), AnySize());
    const ValueId shape = EmitShape(dims);
    Emit(TensorOp::kExpand, {x, shape}, MakeDesc(Desc(x).dtype, dims));
    return true;
  }

  bool Concat() {
    const ValueId x = PickRanked();
    if (x == kNoValue) return false;
    const int axis = Axis(x);
    const ValueId y = Pick([&](ValueId id) {
      if (Desc(id).dtype != Desc(x).dtype || Desc(id).rank() != Desc(x).rank()) return false;
      for (int i = 0; i < Desc(x).rank(); ++i) {
        if (i != axis && DimsOf(id)[static_cast<size_t>(i)] != DimsOf(x)[static_cast<size_t>(i)]) return false;
      }
      return true;
    });
    std::vector<Dim> dims = DimsOf(x);
    Dim& size = dims[static_cast<size_t>(axis)];
    size = symbols().Add(size, DimsOf(y)[static_cast<size_t>(axis)]);
    const int64_t written = OneIn(2) ? axis : axis - Desc(x).rank();
    Emit(TensorOp::kConcat, {x, y}, MakeDesc(Desc(x).dtype, dims), With("axis", written));
    return true;
  }

  bool SplitInTwo() {
    const ValueId x = Pick([&](ValueId id) {
      return std::any_of(DimsOf(id).begin(), DimsOf(id).end(),
                         [&](Dim dim) { return symbols().Divisor(dim) % 2 == 0 && dim != Dim::Const(0); });
    });
    if (x == kNoValue) return false;
    std::vector<Dim> dims = DimsOf(x);
    const auto at = std::find_if(dims.begin(), dims.end(),
                                 [&](Dim dim) { return symbols().Divisor(dim) % 2 == 0 && dim != Dim::Const(0); });
    Attributes attributes = With("axis", static_cast<int64_t>(at - dims.begin()));
    attributes.Set("num_outputs", int64_t{2});
    *at = symbols().ExactDiv(*at, Dim::Const(2));
    const TensorDesc half = MakeDesc(Desc(x).dtype, dims);
    EmitAll(TensorOp::kSplit, {x}, {half, half}, std::move(attributes));
    return true;
  }

  bool Pad() {
    const ValueId x = Pick([&](ValueId id) { return Desc(id).rank() > 0 && Desc(id).dtype != DType::kBool; });
    if (x == kNoValue) return false;
    std::vector<int64_t> pads(2 * static_cast<size_t>(Desc(x).rank()), 0);
    const size_t axis = static_cast<size_t>(Axis(x));
    pads[axis] = Below(3);
    pads[axis + pads.size() / 2] = Below(3);
    std::vector<Dim> dims = DimsOf(x);
    dims[axis] = symbols().Add(dims[axis], Dim::Const(pads[axis] + pads[axis + pads.size() / 2]));
    const ValueId amounts = EmitInts(pads), value = EmitScalar(Desc(x).dtype);
    Emit(TensorOp::kPad, {x, amounts, value}, MakeDesc(Desc(x).dtype, dims), With("mode", std::string("constant")));
    return true;
  }

  bool Gather() {
    const ValueId x = Pick([&](ValueId id) {
      return std::any_of(DimsOf(id).begin(), DimsOf(id).end(), [&](Dim dim) { return !MayBeEmpty(dim); });
    });
    if (x == kNoValue) return false;
    int axis = 0;
    while (MayBeEmpty(DimsOf(x)[static_cast<size_t>(axis)])) ++axis;
    const int64_t size = symbols().Bounds(DimsOf(x)[static_cast<size_t>(axis)]).min;
    std::vector<int64_t> indices;
    for (int i = Below(4); i > 0; --i)
      indices.push_back(static_cast<int64_t>(random_() % static_cast<uint64_t>(2 * size)) - size);
    std::vector<Dim> dims = DimsOf(x);
    ValueId index;
    if (indices.size() == 1) {
      dims.erase(dims.begin() + axis);
      index = EmitConstant(Tensor::Of<int64_t>(DType::kI64, {}, indices));
    } else {
      dims[static_cast<size_t>(axis)] = Dim::Const(static_cast<int64_t>(indices.size()));
      index = EmitInts(indices);
    }
    Emit(TensorOp::kGather, {x, index}, MakeDesc(Desc(x).dtype, dims), With("axis", static_cast<int64_t>(axis)));
    return true;
  }

  // Rows of a tensor, changed and put back; some of them to the same place.
  bool Scatter() {
    const ValueId x = Pick([&](ValueId id) {
      return Desc(id).rank() > 0 && !MayBeEmpty(DimsOf(id)[0]) && Desc(id).dtype != DType::kBool;
    });
    if (x == kNoValue) return false;
    const int64_t size = symbols().Bounds(DimsOf(x)[0]).min, count = 1 + Below(4);
    std::vector<int64_t> from, to;
    for (int64_t i = 0; i < count; ++i)
      for (std::vector<int64_t>* indices : {&from, &to})
        indices->push_back(static_cast<int64_t>(random_() % static_cast<uint64_t>(2 * size)) - size);
    std::vector<Dim> dims = DimsOf(x);
    dims[0] = Dim::Const(count);
    const TensorDesc desc = MakeDesc(Desc(x).dtype, dims);
    const ValueId rows = Emit(TensorOp::kGather, {x, EmitInts(from)}, desc, With("axis", int64_t{0}));
    const ValueId updates = Emit(TensorOp::kMax, {rows, EmitScalar(Desc(x).dtype)}, desc);
    const std::string reductions[] = {"none", "add", "mul", "min", "max"};
    const ValueId places = EmitConstant(Tensor::Of<int64_t>(DType::kI64, {count, 1}, to));
    Emit(TensorOp::kScatterND, {x, places, updates}, Desc(x), With("reduction", Choose(reductions)));
    return true;
  }

  bool Cumulate() {
    const ValueId x = Pick([&](ValueId id) { return Desc(id).rank() > 0 && Desc(id).dtype != DType::kBool; });
    if (x == kNoValue) return false;
    const int64_t along[] = {Axis(x)};
    const ValueId axis = EmitConstant(Tensor::Of<int64_t>(DType::kI64, {}, along));
    Attributes attributes = With("exclusive", static_cast<int64_t>(OneIn(2)));
    attributes.Set("reverse", static_cast<int64_t>(OneIn(2)));
    Emit(TensorOp::kCumSum, {x, axis}, Desc(x), std::move(attributes));
    return true;
  }

  bool Reduce() {
    const ValueId x = Pick([&](ValueId id) { return Desc(id).rank() > 0 && IsFloat(Desc(id).dtype); });
    if (x == kNoValue) return false;
    const int axis = Axis(x);
    const bool keep = OneIn(2);
    std::vector<Dim> dims = DimsOf(x);
    const bool empty = MayBeEmpty(dims[static_cast<size_t>(axis)]);
    dims[static_cast<size_t>(axis)] = Dim::Const(1);
    if (!keep) dims.erase(dims.begin() + axis);
    if (!empty && OneIn(3)) {
      Attributes attributes = With("axis", static_cast<int64_t>(axis));
      attributes.Set("keepdims", static_cast<int64_t>(keep));
      Emit(OneIn(2) ? TensorOp::kArgMax : TensorOp::kArgMin, {x}, MakeDesc(DType::kI64, dims), std::move(attributes));
      return true;
    }
    // Only a sum has a value over nothing.
    const TensorOp ops[] = {TensorOp::kReduceMean, TensorOp::kReduceMax, TensorOp::kReduceMin, TensorOp::kReduceL1,
                            TensorOp::kReduceSumSquare};
    const ValueId axes = EmitInts({OneIn(2) ? axis : axis - Desc(x).rank()});
    Emit(empty || OneIn(2) ? TensorOp::kReduceSum : Choose(ops), {x, axes}, MakeDesc(Desc(x).dtype, dims),
         With("keepdims", static_cast<int64_t>(keep)));
    return true;
  }

  bool MatMul() {
    const ValueId x = Pick([&](ValueId id) {
      return Desc(id).rank() > 1 && Desc(id).dtype == DType::kF32 && DimsOf(id).back().is_const() &&
             DimsOf(id).back().value() <= 64;
    });
    if (x == kNoValue) return false;
    const int64_t columns[] = {1, 2, 5, 8};
    const int64_t n = Choose(columns);
    std::vector<Dim> dims = DimsOf(x);
    const ValueId w = EmitConstant(RandomTensor(DType::kF32, {dims.back().value(), n}, random_()));
    dims.back() = Dim::Const(n);
    Emit(TensorOp::kMatMul, {x, w}, MakeDesc(DType::kF32, dims));
    return true;
  }

  bool Normalize() {
    const ValueId x = Pick([&](ValueId id) { return Desc(id).rank() > 0 && IsFloat(Desc(id).dtype); });
    if (x == kNoValue) return false;
    const Dim last = DimsOf(x).back();
    if (last.is_const() && last.value() >= 2 && last.value() <= 64 && OneIn(2)) {
      const ValueId scale = EmitConstant(RandomTensor(Desc(x).dtype, {last.value()}, random_()));
      Attributes attributes = With("axis", int64_t{-1});
      attributes.Set("epsilon", 0.1);
      Emit(TensorOp::kLayerNormalization, {x, scale}, Desc(x), std::move(attributes));
    } else {
      Emit(OneIn(4) ? TensorOp::kLogSoftmax : TensorOp::kSoftmax, {x}, Desc(x),
           With("axis", static_cast<int64_t>(Axis(x))));
    }
    return true;
  }

  bool NonZero() {
    const ValueId x = PickRanked();
    if (!options_.data_dependent || x == kNoValue) return false;
    const Dim count = symbols().FreshSymbol();
    Emit(TensorOp::kNonZero, {x}, MakeDesc(DType::kI64, {Dim::Const(Desc(x).rank()), count}));
    return true;
  }

  ValueId EmitCondition() {
    const ValueId x = PickFloat();
    if (x == kNoValue) return EmitConstant(RandomTensor(DType::kBool, {}, random_()));
    const ValueId sum = Emit(TensorOp::kReduceSum, {x}, MakeDesc(Desc(x).dtype, {}), With("keepdims", int64_t{0}));
    return Emit(TensorOp::kGreater, {sum, EmitScalar(Desc(x).dtype)}, MakeDesc(DType::kBool, {}));
  }

  // A few nodes, then one that gives a value like `like`.
  ValueId RegionResult(ValueId like) {
    FillRegion(1 + Below(3));
    const ValueId other = Pick([&](ValueId id) { return Desc(id) == Desc(like); });
    const ValueId factor = EmitScalar(Desc(like).dtype);
    const ValueId sum = Emit(TensorOp::kMin, {like, other == kNoValue ? like : other}, Desc(like));
    return Emit(TensorOp::kMax, {sum, factor}, Desc(like));
  }

  bool If() {
    const ValueId x = PickFloat();
    if (!options_.control_flow || open_.size() > 2 || x == kNoValue) return false;
    const ValueId condition = EmitCondition();
    std::vector<RegionId> regions;
    for (int branch = 0; branch < 2; ++branch) {
      regions.push_back(NewRegion());
      const ValueId result = branch == 1 && OneIn(3) ? x : RegionResult(x);
      region().outputs = {result};
      CloseRegion();
    }
    Emit(TensorOp::kIf, {condition}, Desc(x), {}, regions);
    return true;
  }

  bool Loop() {
    const ValueId x = PickFloat();
    if (!options_.control_flow || open_.size() > 2 || x == kNoValue || Desc(x).rank() > 6) return false;
    const int64_t trips = Below(4);
    const ValueId count = EmitConstant(Tensor::Of<int64_t>(DType::kI64, {}, std::span(&trips, 1)));
    const RegionId body = NewRegion();
    const ValueId iteration = NewValue(MakeDesc(DType::kI64, {}), "i");
    const ValueId go = NewValue(MakeDesc(DType::kBool, {}), "go");
    const ValueId state = NewValue(Desc(x), "state");
    region().inputs = {iteration, go, state};
    const ValueId next = RegionResult(state);
    const ValueId again = OneIn(2) ? go : EmitCondition();
    const bool scans = options_.data_dependent;
    region().outputs = {again, next};
    if (scans) region().outputs.push_back(state);
    CloseRegion();
    std::vector<TensorDesc> descs = {Desc(x)};
    if (scans) {
      std::vector<Dim> dims = DimsOf(x);
      dims.insert(dims.begin(), symbols().FreshSymbol());
      descs.push_back(MakeDesc(Desc(x).dtype, dims));
    }
    EmitAll(TensorOp::kLoop, {count, kNoValue, x}, descs, {}, {body});
    return true;
  }

  // Running results over the first axis.
  bool Scan() {
    const ValueId x = Pick([&](ValueId id) { return Desc(id).rank() > 0 && IsFloat(Desc(id).dtype); });
    if (!options_.control_flow || open_.size() > 2 || x == kNoValue) return false;
    const std::vector<Dim> row(DimsOf(x).begin() + 1, DimsOf(x).end());
    const DType dtype = Desc(x).dtype;
    const ValueId zero = EmitScalar(dtype);
    const ValueId shape = EmitShape(row);
    const ValueId first = Emit(TensorOp::kExpand, {zero, shape}, MakeDesc(dtype, row));
    const RegionId body = NewRegion();
    const ValueId state = NewValue(MakeDesc(dtype, row), "state");
    const ValueId item = NewValue(MakeDesc(dtype, row), "item");
    region().inputs = {state, item};
    const ValueId next = Emit(TensorOp::kMax, {state, item}, MakeDesc(dtype, row));
    region().outputs = {next, next};
    CloseRegion();
    EmitAll(TensorOp::kScan, {first, x}, {MakeDesc(dtype, row), Desc(x)}, With("num_scan_inputs", int64_t{1}), {body});
    return true;
  }

  void FillRegion(int nodes) {
    using Maker = bool (ProgramGenerator::*)();
    constexpr Maker kMakers[] = {
        &ProgramGenerator::Unary,     &ProgramGenerator::Unary,      &ProgramGenerator::Binary,
        &ProgramGenerator::Binary,    &ProgramGenerator::Logic,      &ProgramGenerator::Where,
        &ProgramGenerator::Cast,      &ProgramGenerator::Transpose,  &ProgramGenerator::Reshape,
        &ProgramGenerator::Unsqueeze, &ProgramGenerator::Slice,      &ProgramGenerator::Expand,
        &ProgramGenerator::Concat,    &ProgramGenerator::SplitInTwo, &ProgramGenerator::Pad,
        &ProgramGenerator::Gather,    &ProgramGenerator::Reduce,     &ProgramGenerator::Reduce,
        &ProgramGenerator::Scatter,   &ProgramGenerator::Cumulate,   &ProgramGenerator::MatMul,
        &ProgramGenerator::Normalize, &ProgramGenerator::NonZero,    &ProgramGenerator::If,
        &ProgramGenerator::Loop,      &ProgramGenerator::Scan};
    for (int made = 0, tried = 0; made < nodes && tried < 10 * nodes; ++tried) {
      made += (this->*Choose(kMakers))();
      // Sizes multiply: stop before a tensor could become too large to run.
      for (ValueId id : visible_.back()) {
        if (IsLarge(id)) return;
      }
    }
  }

  bool IsLarge(ValueId id) {
    Dim elements = Dim::Const(1);
    for (Dim dim : DimsOf(id)) elements = symbols().Mul(elements, dim);
    std::vector<int64_t> typical(symbols().symbol_count(), 16);
    const auto count = symbols().Evaluate(elements, typical);
    return !count || *count > 100'000;
  }

  // Values of the body that nothing uses, at most six; the last one at least.
  std::vector<ValueId> Sinks() {
    std::vector<ValueId> sinks;
    for (ValueId id : visible_.back()) {
      if (uses_[static_cast<size_t>(id)] == 0) sinks.push_back(id);
    }
    if (sinks.size() > 6) sinks.erase(sinks.begin(), sinks.end() - 6);
    if (sinks.empty()) sinks.push_back(visible_.back().back());
    return sinks;
  }
};

}  // namespace

Program RandomProgram(uint64_t seed, const RandomProgramOptions& options) {
  return ProgramGenerator(seed, options).Run();
}

}  // namespace kiln::testing

// Random loop nests with their memory, from a seed: for comparing generated code with the evaluator.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "tests/support/spec_builder.h"

namespace kiln::testing {

struct PointerMemory {
  DType storage = DType::kF32;
  std::vector<uint8_t> bytes;
  int64_t origin = 0;  // element that the pointer points at: strides may be negative
  void* pointer() { return bytes.data() + origin * DTypeBytes(storage); }
};

struct RandomKernel {
  ir::KernelSpec spec;
  std::vector<int64_t> dims;
  std::vector<PointerMemory> memory;
};

class RandomLoopNest {
 public:
  RandomLoopNest(uint64_t seed, int lanes) : random_(seed), lanes_(lanes) {}

  RandomKernel Make() {
    nest_.reduce_inner = Chance(2);
    nest_.pairs_rows = nest_.reduce_inner && Chance(2);
    const int outer = Pick(4), reduce = Chance(2) ? Pick(3) : 0;
    for (int i = 0; i < outer; ++i) nest_.outer.push_back(Extent(i == 0 ? 20 : 5));
    for (int i = 0; i < reduce; ++i) nest_.reduce.push_back(Extent(6));
    nest_.inner = Extent(0);
    const int loads = 1 + Pick(4);
    for (int i = 0; i < loads; ++i) AddInput();
    AddStages();
    nest_.body = program_.Take();
    RandomKernel kernel;
    kernel.spec = {nest_, static_cast<int32_t>(memory_.size()), static_cast<int32_t>(dims_.size())};
    kernel.dims = dims_;
    kernel.memory = std::move(memory_);
    return kernel;
  }

 private:
  struct Value {
    int32_t node;
    DType type;
    bool exact;
  };

  int Pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  bool Chance(int n) { return Pick(n) == 0; }

  // Sizes around the vector length, 0 and 1 included; half of them arguments.
  ir::SpecInt Extent(int limit) {
    const int64_t lanes = lanes_;
    const int64_t choices[] = {
        0, 1, 2, 3, lanes - 1, lanes, lanes + 1, 2 * lanes + 3, 4 * lanes, 4 * lanes + 5, 9 * lanes + 1};
    int64_t value = limit > 0 ? 1 + Pick(limit) : choices[Pick(11)];
    if (limit > 0 && Chance(15)) value = 0;
    extents_.push_back(value);
    return Int(value);
  }
  ir::SpecInt Int(int64_t value) {
    if (Chance(2)) return ir::SpecInt::Const(value);
    dims_.push_back(value);
    return ir::SpecInt::Argument(static_cast<int64_t>(dims_.size()) - 1);
  }

  // Dense strides over the dims of `used`, in a random order of dims, sometimes with gaps or backwards.
  ir::Access MakeAccess(DType storage, const std::vector<bool>& used, bool may_reverse) {
    const size_t count = extents_.size();
    std::vector<size_t> order(count);
    for (size_t i = 0; i < count; ++i) order[i] = count - 1 - i;
    if (Chance(3)) std::shuffle(order.begin(), order.end(), random_);
    std::vector<ir::SpecInt> strides(count, ir::SpecInt::Const(0));
    int64_t step = Chance(6) ? 2 : 1, low = 0, high = 0;
    for (size_t dim : order) {
      if (!used[dim]) continue;
      int64_t stride = step;
      if (may_reverse && Chance(12)) stride = -stride;
      const int64_t reach = stride * std::max<int64_t>(extents_[dim] - 1, 0);
      (reach < 0 ? low : high) += reach;
      strides[dim] = dim + 1 == count && Chance(2) ? ir::SpecInt::Const(stride) : Int(stride);
      step *= std::max<int64_t>(extents_[dim], 1);
    }
    PointerMemory memory;
    memory.storage = storage;
    memory.origin = -low;
    memory.bytes.resize(static_cast<size_t>((high - low + 1) * DTypeBytes(storage)));
    const auto pointer = static_cast<int32_t>(memory_.size());
    memory_.push_back(std::move(memory));
    return {pointer, storage, strides};
  }

  void Fill(PointerMemory& memory) {
    DispatchDType(memory.storage, [&]<class T>() {
      auto* elements = reinterpret_cast<T*>(memory.bytes.data());
      for (size_t i = 0; i < memory.bytes.size() / sizeof(T); ++i) {
        const float number = static_cast<float>(static_cast<int>(random_() % 4001) - 2000) / 1000.0f;
        if constexpr (std::is_same_v<T, bool>) {
          elements[i] = (random_() & 1) != 0;
        } else if constexpr (std::is_integral_v<T>) {
          elements[i] = static_cast<T>(random_());
        } else {
          elements[i] = static_cast<T>(number);
        }
      }
    });
  }

  void AddInput() {
    static constexpr DType kStorages[] = {DType::kF32,  DType::kF32, DType::kF32, DType::kF16, DType::kBF16,
                                          DType::kF64,  DType::kI8,  DType::kU8,  DType::kI32, DType::kI64,
                                          DType::kBool, DType::kU16, DType::kI16, DType::kU32, DType::kU64};
    const DType storage = kStorages[Pick(15)];
    std::vector<bool> used(extents_.size());
    for (size_t i = 0; i < used.size(); ++i) used[i] = !Chance(4);
    nest_.accesses.push_back(MakeAccess(storage, used, true));
    Fill(memory_.back());
    inputs_.push_back(static_cast<int32_t>(nest_.accesses.size()) - 1);
  }

  // A node that is a constant or an argument.
  int32_t Fixed(int64_t value) {
    const ir::SpecInt number = Int(value);
    return number.is_argument ? program_.Argument(static_cast<int32_t>(number.value)) : program_.Integer(value);
  }

  // An element of a table at a position that is read or follows from the loops; some positions are outside of it.
  Value TableEntry(DType type) {
    static constexpr DType kStorages[] = {DType::kF32, DType::kF32, DType::kF16, DType::kI64, DType::kU8, DType::kI32};
    const DType storage = kStorages[Pick(6)];
    std::vector<bool> used(extents_.size());
    for (size_t i = 0; i < used.size(); ++i) used[i] = Chance(2);
    nest_.accesses.push_back(MakeAccess(storage, used, true));
    PointerMemory& memory = memory_.back();
    const int64_t elements = static_cast<int64_t>(memory.bytes.size()) / DTypeBytes(storage);
    const int64_t entries = 1 + Pick(9), stride = Chance(3) ? 1 : Chance(2) ? elements : 0;
    memory.bytes.resize(static_cast<size_t>((elements + (entries - 1) * stride) * DTypeBytes(storage)));
    Fill(memory);
    const int32_t extent = Fixed(entries), step = Fixed(stride);
    const auto access = static_cast<int32_t>(nest_.accesses.size()) - 1;
    int32_t position = Leaf(DType::kI64).node;
    if (Chance(2))
      position = program_.Op(ir::ScalarOp::kDiv, position, program_.Integer(int64_t{1} << 59), -1, DType::kI64);
    const int32_t node = program_.LoadAt(access, position, extent, step, type);
    return {IsFloat(storage) || !IsFloat(type) ? node : Tame(node, type), type, true};
  }

  Value Leaf(DType type) {
    if (type != DType::kBool && nest_.accesses.size() < 12 && Chance(10)) return TableEntry(type);
    const int32_t access = inputs_[static_cast<size_t>(Pick(static_cast<int>(inputs_.size())))];
    const DType storage = nest_.accesses[static_cast<size_t>(access)].storage;
    if (IsFloat(type)) {
      if (!stored_.empty() && Chance(4))
        return {program_.Load(stored_[static_cast<size_t>(Pick(static_cast<int>(stored_.size())))], type), type, false};
      if (!results_.empty() && Chance(3)) {
        const auto [stage, result_type] = results_[static_cast<size_t>(Pick(static_cast<int>(results_.size())))];
        int32_t node = program_.StageResult(stage, result_type);
        if (result_type != type) node = program_.Op(ir::ScalarOp::kConvert, node, -1, -1, type);
        return {Tame(node, type), type, false};
      }
      if (Chance(8)) return {program_.Number(static_cast<double>(Pick(40) - 20) / 8, type), type, true};
      const int32_t node = program_.Load(access, type);
      return {IsFloat(storage) || storage == DType::kBool ? node : Tame(node, type), type, true};
    }
    if (type == DType::kI64 && Chance(6))
      return {program_.Coordinate(Pick(static_cast<int>(extents_.size()))), type, true};
    if (type == DType::kI64 && !dims_.empty() && Chance(8))
      return {program_.Argument(Pick(static_cast<int>(dims_.size()))), type, true};
    if (Chance(6)) return {program_.Integer(type == DType::kBool ? Pick(2) : Pick(200) - 100, type), type, true};
    return {program_.Load(access, type), type, true};
  }

  // Keeps floats where errors stay small: into [-3, 3].
  int32_t Tame(int32_t node, DType type) {
    const int32_t low = program_.Op(ir::ScalarOp::kMax, node, program_.Number(-3, type), -1, type);
    return program_.Op(ir::ScalarOp::kMin, low, program_.Number(3, type), -1, type);
  }

  Value Expression(DType type, int depth) {
    using ir::ScalarOp;
    if (depth == 0) return Leaf(type);
    if (type == DType::kBool) return Condition(depth);
    if (Chance(6)) {
      const Value condition = Condition(depth - 1), a = Expression(type, depth - 1), b = Expression(type, depth - 1);
      return {program_.Op(ScalarOp::kSelect, condition.node, a.node, b.node, type), type,
              condition.exact && a.exact && b.exact};
    }
    if (!IsFloat(type)) {
      static constexpr ScalarOp kOps[] = {ScalarOp::kAdd, ScalarOp::kSub, ScalarOp::kMul,
                                          ScalarOp::kMin, ScalarOp::kMax, ScalarOp::kDiv,
                                          ScalarOp::kNeg, ScalarOp::kAbs, ScalarOp::kConvert};
      const ScalarOp op = kOps[Pick(9)];
      const Value a =
          op == ScalarOp::kConvert ? Leaf(Chance(2) ? DType::kI64 : DType::kI32) : Expression(type, depth - 1);
      if (op == ScalarOp::kNeg || op == ScalarOp::kAbs || op == ScalarOp::kConvert)
        return {program_.Op(op, a.node, -1, -1, type), type, a.exact};
      const Value b = Expression(type, depth - 1);
      return {program_.Op(op, a.node, b.node, -1, type), type, a.exact && b.exact};
    }
    static constexpr ScalarOp kUnary[] = {ScalarOp::kNeg,     ScalarOp::kAbs, ScalarOp::kTanh, ScalarOp::kErf,
                                          ScalarOp::kSigmoid, ScalarOp::kSin, ScalarOp::kCos,  ScalarOp::kExp};
    static constexpr ScalarOp kBinary[] = {ScalarOp::kAdd, ScalarOp::kSub, ScalarOp::kMul, ScalarOp::kMin,
                                           ScalarOp::kMax};
    const Value a = Expression(type, depth - 1);
    if (Chance(3))
      return {Tame(program_.Op(kUnary[Pick(type == DType::kF64 ? 2 : 8)], a.node, -1, -1, type), type), type, false};
    const Value b = Expression(type, depth - 1);
    if (Chance(5)) {
      const Value c = Expression(type, depth - 1);
      return {Tame(program_.Op(ScalarOp::kFma, a.node, b.node, c.node, type), type), type, false};
    }
    return {Tame(program_.Op(kBinary[Pick(5)], a.node, b.node, -1, type), type), type, false};
  }

  // Only exact values are compared, so that rounding cannot turn a branch.
  Value Condition(int depth) {
    using ir::ScalarOp;
    static constexpr DType kTypes[] = {DType::kF32, DType::kI32, DType::kI64, DType::kF64};
    if (depth > 1 && Chance(3)) {
      const Value a = Condition(depth - 1), b = Condition(depth - 1);
      return {program_.Op(Chance(2) ? ScalarOp::kAnd : ScalarOp::kOr, a.node, b.node, -1, DType::kBool), DType::kBool,
              true};
    }
    if (Chance(6)) return Leaf(DType::kBool);
    const DType type = kTypes[Pick(4)];
    Value a = ExactLeaf(type), b = ExactLeaf(type);
    const ScalarOp op = Chance(3) ? ScalarOp::kEqual : Chance(2) ? ScalarOp::kLess : ScalarOp::kLessEqual;
    return {program_.Op(op, a.node, b.node, -1, DType::kBool), DType::kBool, true};
  }
  Value ExactLeaf(DType type) {
    const int32_t access = inputs_[static_cast<size_t>(Pick(static_cast<int>(inputs_.size())))];
    return {program_.Load(access, type), type, true};
  }

  // An input that varies with exactly the dims a store covers, to be overwritten; -1 for none. It is no exact input any
  // more.
  int32_t InPlace(const std::vector<bool>& used, DType type) {
    if (!IsFloat(type) || inputs_.size() < 2 || !Chance(2)) return -1;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const ir::Access& access = nest_.accesses[static_cast<size_t>(inputs_[i])];
      bool same = IsFloat(access.storage);
      for (size_t dim = 0; dim < used.size(); ++dim)
        same = same && (access.strides[dim] != ir::SpecInt::Const(0)) == used[dim];
      if (!same) continue;
      const int32_t place = inputs_[i];
      inputs_.erase(inputs_.begin() + static_cast<std::ptrdiff_t>(i));
      return place;
    }
    return -1;
  }

  void AddStages() {
    const int reductions = nest_.reduce_inner || !nest_.reduce.empty() ? Pick(3) : 0;
    for (int i = 0; i < reductions; ++i) AddReduction();
    AddStore();
    if (Chance(3)) {
      if (nest_.reduce_inner) AddReduction();
      AddStore();
    }
    if (!nest_.reduce_inner && Chance(3)) AddScatter();
    if (!nest_.reduce_inner && Chance(3)) AddScan();
  }

  // Entries of a table by outer and inner position, set or changed at positions that are read or follow from the loops.
  void AddScatter() {
    static constexpr DType kTypes[] = {DType::kF32, DType::kF32, DType::kF64, DType::kI32, DType::kI64};
    static constexpr DType kFloatStorages[] = {DType::kF32, DType::kF32, DType::kF16, DType::kF64};
    static constexpr DType kIntStorages[] = {DType::kI32, DType::kI64, DType::kU8, DType::kI16};
    const DType type = kTypes[Pick(5)];
    const Value value = Expression(type, 1 + Pick(2));
    const int32_t position = Chance(2) ? Leaf(DType::kI64).node
                                       : program_.Op(ir::ScalarOp::kDiv, Leaf(DType::kI64).node,
                                                     program_.Integer(int64_t{1} << 59), -1, DType::kI64);
    std::vector<bool> used(extents_.size(), false);
    for (size_t i = 0; i < used.size(); ++i) used[i] = i < nest_.outer.size() || i + 1 == used.size();
    nest_.accesses.push_back(MakeAccess((IsFloat(type) ? kFloatStorages : kIntStorages)[Pick(4)], used, true));
    PointerMemory& memory = memory_.back();
    const auto elements = static_cast<int64_t>(memory.bytes.size()) / DTypeBytes(memory.storage);
    const int64_t entries = 1 + Pick(9);
    memory.bytes.resize(memory.bytes.size() * static_cast<size_t>(entries));
    Fill(memory);
    const auto access = static_cast<int32_t>(nest_.accesses.size()) - 1;
    const int32_t extent = Fixed(entries), step = Fixed(elements);
    const int32_t place = program_.LoadAt(access, position, extent, step, type);
    int32_t stored = value.node;
    static constexpr ir::ScalarOp kOps[] = {ir::ScalarOp::kAdd, ir::ScalarOp::kMin, ir::ScalarOp::kMax};
    if (Chance(2)) stored = program_.Op(kOps[Pick(3)], place, stored, -1, type);
    ir::Stage stage = StoreStage(ir::Stage::Domain::kFull, {{access, stored}});
    stage.kind = ir::Stage::Kind::kScatter;
    stage.node = place;
    nest_.stages.push_back(stage);
  }

  void AddScan() {
    static constexpr DType kTypes[] = {DType::kF32, DType::kF32, DType::kF64, DType::kI32, DType::kI64};
    static constexpr ir::ScalarOp kOps[] = {ir::ScalarOp::kAdd, ir::ScalarOp::kMul, ir::ScalarOp::kMax,
                                            ir::ScalarOp::kMin};
    const DType type = kTypes[Pick(5)];
    const auto combine = static_cast<ir::Combine>(1 + Pick(4));
    int32_t value = Expression(type, 1 + Pick(2)).node;
    if (combine == ir::Combine::kProduct && IsFloat(type))  // stays in [-1, 1]
      value = program_.Op(ir::ScalarOp::kMul, value, program_.Number(0.25, type), -1, type);
    const int32_t running = program_.StageResult(static_cast<int32_t>(nest_.stages.size()), type);
    const int32_t next = program_.Op(kOps[static_cast<int>(combine) - 1], running, value, -1, type);
    std::vector<ir::Store> list;
    for (const int32_t stored : {running, next}) {
      if (!list.empty() && Chance(2)) break;
      nest_.accesses.push_back(MakeAccess(type, std::vector<bool>(extents_.size(), true), true));
      list.push_back({static_cast<int32_t>(nest_.accesses.size()) - 1, stored});
    }
    ir::Stage stage = StoreStage(ir::Stage::Domain::kFull, list);
    stage.kind = ir::Stage::Kind::kScan;
    stage.combine = combine;
    stage.node = next;
    nest_.stages.push_back(stage);
  }

  void AddReduction() {
    static constexpr DType kTypes[] = {DType::kF32, DType::kF32, DType::kF64, DType::kI32, DType::kI64};
    const DType type = kTypes[Pick(5)];
    Value value = Expression(type, 1 + Pick(3));
    auto combine = static_cast<ir::Combine>(1 + Pick(4));
    if (combine == ir::Combine::kProduct && IsFloat(type)) {  // near 1, so that long products stay finite
      const int32_t small = program_.Op(ir::ScalarOp::kMul, value.node, program_.Number(0.001, type), -1, type);
      value.node = program_.Op(ir::ScalarOp::kAdd, small, program_.Number(1, type), -1, type);
    }
    nest_.stages.push_back(ReduceStage(combine, value.node));
    if (IsFloat(type)) results_.push_back({static_cast<int32_t>(nest_.stages.size()) - 1, type});
  }

  void AddStore() {
    static constexpr DType kFloatStorages[] = {DType::kF32, DType::kF32, DType::kF16, DType::kBF16, DType::kF64};
    static constexpr DType kIntStorages[] = {DType::kI32,  DType::kI64, DType::kU8, DType::kI8,
                                             DType::kBool, DType::kU64, DType::kI16};
    static constexpr DType kTypes[] = {DType::kF32, DType::kF32, DType::kF32, DType::kF64,
                                       DType::kI32, DType::kI64, DType::kBool};
    const auto domain =
        nest_.reduce_inner ? static_cast<ir::Stage::Domain>(1 + Pick(3)) : static_cast<ir::Stage::Domain>(2 + Pick(2));
    std::vector<bool> used(extents_.size(), true);
    for (size_t i = 0; i < used.size(); ++i) {
      if (i < nest_.outer.size()) continue;
      if (domain == ir::Stage::Domain::kRow) used[i] = false;
      if (domain == ir::Stage::Domain::kInner && i + 1 < used.size()) used[i] = false;
    }
    const int stores = 1 + Pick(2);
    std::vector<ir::Store> list;
    for (int i = 0; i < stores; ++i) {
      const DType type = kTypes[Pick(7)];
      const Value value = Expression(type, 1 + Pick(4));
      if (const int32_t place = InPlace(used, type); place >= 0) {
        list.push_back({place, value.node});
        continue;
      }
      const DType storage = IsFloat(type) ? kFloatStorages[Pick(5)] : kIntStorages[Pick(7)];
      nest_.accesses.push_back(MakeAccess(storage, used, false));
      std::memset(memory_.back().bytes.data(), 0x11, memory_.back().bytes.size());
      list.push_back({static_cast<int32_t>(nest_.accesses.size()) - 1, value.node});
    }
    // Later stages may read what was written; its floats are tame already.
    for (const ir::Store& store : list)
      if (IsFloat(nest_.accesses[static_cast<size_t>(store.access)].storage)) stored_.push_back(store.access);
    nest_.stages.push_back(StoreStage(domain, list));
  }

  std::mt19937_64 random_;
  int lanes_;
  ir::LoopNestSpec nest_;
  ProgramBuilder program_;
  std::vector<int64_t> extents_;  // outer, reduce, inner
  std::vector<int64_t> dims_;
  std::vector<PointerMemory> memory_;
  std::vector<int32_t> inputs_;  // accesses that are read
  std::vector<int32_t> stored_;  // float accesses that earlier stages stored to
  std::vector<std::pair<int32_t, DType>> results_;
};

}  // namespace kiln::testing

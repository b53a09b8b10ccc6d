// Dice and building blocks of random programs: values, nodes, constants, and the choice among visible values.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "tests/support/random_program.h"

namespace kiln::testing {

class RandomBuilder {
 public:
  RandomBuilder(uint64_t seed, const RandomProgramOptions& options) : options_(options), random_(seed) {}

 protected:
  // --- dice ---
  int Below(int bound) { return static_cast<int>(random_() % static_cast<uint64_t>(bound)); }
  bool OneIn(int n) { return Below(n) == 0; }
  template <class T, size_t N>
  T Choose(const T (&list)[N]) {
    return list[Below(static_cast<int>(N))];
  }

  std::string Name(const std::string& usual) {
    if (!options_.odd_names || !OneIn(4)) return usual + "_" + std::to_string(names_++);
    const char* odd[] = {"", "same", "0", "3", "a/b:0", "quote \" \\ \n", "7up", "\xc3\xa9", "_", "x.y"};
    return Choose(odd);
  }

  // --- building ---
  Function& function() { return program_.functions[0]; }
  Region& region() { return function().regions[static_cast<size_t>(open_.back())]; }
  const TensorDesc& Desc(ValueId id) { return function().values[static_cast<size_t>(id)].desc; }
  const std::vector<Dim>& DimsOf(ValueId id) { return *Desc(id).dims; }
  SymbolTable& symbols() { return program_.symbols; }

  RegionId NewRegion() {
    function().regions.emplace_back();
    open_.push_back(static_cast<RegionId>(function().regions.size() - 1));
    visible_.emplace_back();
    return open_.back();
  }
  void CloseRegion() {
    open_.pop_back();
    visible_.pop_back();
  }

  static TensorDesc MakeDesc(DType dtype, std::vector<Dim> dims) {
    TensorDesc desc;
    desc.dtype = dtype;
    desc.dims = std::move(dims);
    return desc;
  }

  ValueId NewValue(TensorDesc desc, const std::string& name) {
    function().values.push_back({Name(name), std::move(desc)});
    uses_.push_back(0);
    const ValueId id = static_cast<ValueId>(function().values.size() - 1);
    visible_.back().push_back(id);
    return id;
  }

  ValueId Emit(TensorOp op, std::vector<ValueId> inputs, TensorDesc desc, Attributes attributes = {},
               std::vector<RegionId> regions = {}) {
    return EmitAll(op, std::move(inputs), {std::move(desc)}, std::move(attributes), std::move(regions))[0];
  }

  std::vector<ValueId> EmitAll(TensorOp op, std::vector<ValueId> inputs, std::vector<TensorDesc> descs,
                               Attributes attributes = {}, std::vector<RegionId> regions = {}) {
    for (ValueId input : inputs) {
      if (input != kNoValue) ++uses_[static_cast<size_t>(input)];
    }
    std::vector<ValueId> outputs;
    for (TensorDesc& desc : descs) outputs.push_back(NewValue(std::move(desc), "v"));
    region().nodes.push_back({op, Name("node"), std::move(inputs), outputs, std::move(attributes), std::move(regions)});
    return outputs;
  }

  ValueId EmitConstant(Tensor tensor) {
    const bool immediate = Program::IsImmediate(tensor);
    const TensorDesc desc = StaticDesc(tensor.dtype(), tensor.dims());
    program_.constants.push_back({Name("k"), std::move(tensor), immediate});
    Attributes attributes;
    attributes.Set("value", static_cast<ConstantId>(program_.constants.size() - 1));
    return Emit(TensorOp::kConstant, {}, desc, std::move(attributes));
  }
  ValueId EmitInts(std::vector<int64_t> values) {
    return EmitConstant(Tensor::Of<int64_t>(DType::kI64, {static_cast<int64_t>(values.size())}, values));
  }
  ValueId EmitScalar(DType dtype) { return EmitConstant(RandomTensor(dtype, {}, random_())); }
  ValueId EmitShape(std::vector<Dim> dims) {
    const Dim count = Dim::Const(static_cast<int64_t>(dims.size()));
    Attributes attributes;
    attributes.Set("dims", std::move(dims));
    return Emit(TensorOp::kShapeVector, {}, MakeDesc(DType::kI64, {count}), std::move(attributes));
  }

  void AddInput() {
    const DType mixed[] = {DType::kF32, DType::kF32, DType::kF32, DType::kF64,
                           DType::kF16, DType::kI64, DType::kI32, DType::kBool};
    std::vector<Dim> dims;
    for (int rank = Below(5); rank > 0; --rank) {
      const int64_t constants[] = {1, 1, 2, 3, 4, 8};
      dims.push_back(OneIn(2) ? Dim::Const(Choose(constants)) : AnySize());
    }
    region().inputs.push_back(
        NewValue(MakeDesc(options_.only_f32 ? DType::kF32 : Choose(mixed), std::move(dims)), "in"));
  }

  Dim AnySize() { return sizes_[static_cast<size_t>(Below(static_cast<int>(sizes_.size())))]; }

  // A random visible value that satisfies the predicate, later ones more often; kNoValue if there is none.
  template <class F>
  ValueId Pick(F&& wanted) {
    std::vector<ValueId> fitting;
    for (const auto& scope : visible_) {
      for (ValueId id : scope) {
        if (Desc(id).has_rank() && wanted(id)) fitting.push_back(id);
      }
    }
    if (fitting.empty()) return kNoValue;
    const size_t at = std::max(random_() % fitting.size(), random_() % fitting.size());
    return fitting[at];
  }
  ValueId PickFloat() {
    return Pick([&](ValueId id) { return IsFloat(Desc(id).dtype); });
  }
  ValueId PickRanked() {
    return Pick([&](ValueId id) { return Desc(id).rank() > 0; });
  }
  bool MayBeEmpty(Dim dim) { return symbols().Bounds(dim).min <= 0; }
  int Axis(ValueId id) { return Below(Desc(id).rank()); }

  static Attributes With(std::string_view name, AttributeValue value) {
    Attributes attributes;
    attributes.Set(name, std::move(value));
    return attributes;
  }

  const RandomProgramOptions& options_;
  std::mt19937_64 random_;
  Program program_;
  std::vector<Dim> sizes_;
  std::vector<RegionId> open_;
  std::vector<std::vector<ValueId>> visible_;  // by open region, innermost last
  std::vector<int> uses_;
  int names_ = 0;
};

}  // namespace kiln::testing

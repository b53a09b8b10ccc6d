#include <optional>

#include "common/ops/tensor_op.h"
#include "vm-worker/load/fold_node.h"
#include "vm-worker/load/passes.h"

namespace kiln {
namespace {

// Constant indices of a ScatterND that name a block of the data in row-major order, whole in every dim but at most one.
struct Block {
  int axis = 0;
  int64_t first = 0, extent = 0;  // along axis
};

std::optional<Block> BlockOf(const Tensor& indices, const Dims& data) {
  if (indices.dtype() != DType::kI64 || indices.dims().rank() == 0 || indices.ref.elements() == 0) return std::nullopt;
  const int64_t length = indices.dims().back();
  if (length > data.rank()) return std::nullopt;
  const std::span<const int64_t> values = indices.values<const int64_t>();
  const int64_t count = indices.ref.elements() / length;
  const auto at = [&](int64_t tuple, int64_t j) {
    const int64_t index = values[static_cast<size_t>(tuple * length + j)];
    return index < 0 ? index + data[static_cast<int>(j)] : index;
  };
  Block block;
  Dims extents;
  bool partial = false;
  int64_t named = 1;
  for (int64_t j = 0; j < length; ++j) {
    const int64_t first = at(0, j), last = at(count - 1, j), size = data[static_cast<int>(j)];
    if (first < 0 || last < first || last >= size) return std::nullopt;
    const int64_t extent = last - first + 1;
    extents.push_back(extent);
    named *= extent;
    if (extent == size) continue;
    if (partial) return std::nullopt;
    partial = true;
    block = {static_cast<int>(j), first, extent};
  }
  if (!partial) block = {0, 0, extents[0]};
  if (named != count) return std::nullopt;
  for (int64_t tuple = 0; tuple < count; ++tuple) {
    int64_t rest = tuple;
    for (int64_t j = length - 1; j >= 0; --j) {
      const int64_t extent = extents[static_cast<int>(j)];
      if (at(tuple, j) != at(0, j) + rest % extent) return std::nullopt;
      rest /= extent;
    }
  }
  return block;
}

std::optional<Dims> ConstantDims(const TensorDesc& desc) {
  if (!desc.has_rank()) return std::nullopt;
  Dims dims;
  for (Dim dim : *desc.dims) {
    if (!dim.is_const()) return std::nullopt;
    dims.push_back(dim.value());
  }
  return dims;
}

class Rewriter {
 public:
  Rewriter(Program& program, Function& function)
      : program_(program), function_(function), constants_(function.values.size()) {}

  bool Run() {
    for (const Region& region : function_.regions)
      for (const Node& node : region.nodes)
        if (node.op == TensorOp::kConstant)
          constants_[static_cast<size_t>(node.outputs[0])] = node.attributes.Constant("value");
    for (Region& region : function_.regions) {
      std::vector<Node> kept;
      for (Node& node : region.nodes)
        if (!Rewrite(node, kept)) kept.push_back(std::move(node));
      region.nodes = std::move(kept);
    }
    return changed_;
  }

 private:
  bool Rewrite(const Node& node, std::vector<Node>& kept) {
    if (node.op != TensorOp::kScatterND || node.attributes.Text("reduction", "none") != "none") return false;
    const auto constant = constants_[static_cast<size_t>(node.inputs[1])];
    const TensorDesc data = function_.values[static_cast<size_t>(node.inputs[0])].desc;  // values grow below
    const std::optional<Dims> dims = ConstantDims(data);
    if (!constant || !dims) return false;
    const std::optional<Block> block = BlockOf(program_.constants[static_cast<size_t>(*constant)].tensor, *dims);
    if (!block) return false;
    const int64_t size = (*dims)[block->axis], end = block->first + block->extent;
    Dims middle = *dims;
    middle[block->axis] = block->extent;
    std::vector<ValueId> parts;
    if (block->first > 0) parts.push_back(Slice(node, block->axis, 0, block->first, *dims, kept));
    parts.push_back(MakeNode(TensorOp::kReshape, node, {node.inputs[2], Integers(node, middle.span(), kept)},
                             StaticDesc(data.dtype, middle), kept));
    if (end < size) parts.push_back(Slice(node, block->axis, end, size, *dims, kept));
    Node concat{.op = TensorOp::kConcat, .name = node.name, .inputs = parts, .outputs = node.outputs};
    concat.attributes.Set("axis", int64_t{block->axis});
    kept.push_back(std::move(concat));
    return changed_ = true;
  }

  ValueId Slice(const Node& node, int axis, int64_t first, int64_t end, Dims dims, std::vector<Node>& kept) {
    const DType dtype = function_.values[static_cast<size_t>(node.inputs[0])].desc.dtype;
    dims[axis] = end - first;
    const ValueId starts = Integers(node, {&first, 1}, kept), ends = Integers(node, {&end, 1}, kept);
    const int64_t axes = axis;
    return MakeNode(TensorOp::kSlice, node, {node.inputs[0], starts, ends, Integers(node, {&axes, 1}, kept)},
                    StaticDesc(dtype, dims), kept);
  }

  ValueId Integers(const Node& node, std::span<const int64_t> values, std::vector<Node>& kept) {
    const Dims dims{static_cast<int64_t>(values.size())};
    program_.constants.push_back(Constant{"", Tensor::Of<int64_t>(DType::kI64, dims, values), true});
    kept.push_back(ConstantNodeOf(static_cast<ConstantId>(program_.constants.size() - 1), node.name));
    kept.back().outputs = {AddValue(StaticDesc(DType::kI64, dims))};
    return kept.back().outputs[0];
  }

  ValueId MakeNode(TensorOp op, const Node& source, std::vector<ValueId> inputs, TensorDesc desc,
                   std::vector<Node>& kept) {
    const ValueId output = AddValue(std::move(desc));
    kept.push_back(Node{.op = op, .name = source.name, .inputs = std::move(inputs), .outputs = {output}});
    return output;
  }

  ValueId AddValue(TensorDesc desc) {
    function_.values.push_back(Value{"", std::move(desc)});
    constants_.push_back(std::nullopt);
    return static_cast<ValueId>(function_.values.size() - 1);
  }

  Program& program_;
  Function& function_;
  std::vector<std::optional<ConstantId>> constants_;  // by value
  bool changed_ = false;
};

}  // namespace

Result<bool> ConcatBlockScatters(Program& program) {
  bool changed = false;
  for (Function& function : program.functions) changed |= Rewriter(program, function).Run();
  return changed;
}

}  // namespace kiln

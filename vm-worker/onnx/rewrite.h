// How one ONNX node becomes nodes of the op table: a row of node_rules.def names the rewrite.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "vm-worker/onnx/node_attributes.h"
#include "vm-worker/onnx/program_builder.h"

namespace kiln::onnx {

class GraphImporter;
struct Scope;
struct NodeRule;

// One node on its way. `inputs` holds kNoValue for absent optional ones; `outputs` counts the node's output names.
struct NodeContext {
  ProgramBuilder& b;
  GraphImporter& importer;
  const Scope& scope;  // for graphs in attributes
  const NodeRule& rule;
  const NodeAttributes& attributes;
  int64_t opset;  // of the node's domain
  ValueList inputs;
  int outputs;

  ValueId In(size_t i) const { return i < inputs.size() ? inputs[i] : kNoValue; }
  bool Has(size_t i) const { return In(i) != kNoValue; }
  DType DTypeOf(ValueId value) const { return b.Desc(value).dtype; }
  // Rank of a value, or -1.
  int RankOf(ValueId value) const { return b.Desc(value).has_rank() ? b.Desc(value).rank() : -1; }
  // The attributes that the row lists, in Kiln's form.
  Result<Attributes> Translated() const;
  // InvalidArgument unless there are at least `count` present inputs in front.
  Status Require(size_t count) const;
};

// Returns a value for each of the node's outputs, in order, and perhaps more; kNoValue only where a name is empty.
using Rewrite = Result<ValueList> (*)(NodeContext&);

struct NodeRule {
  std::string_view domain;  // "" is ai.onnx
  std::string_view op_type;
  int64_t opset_min, opset_max;
  Rewrite rewrite;
  TensorOp op;                  // what the rewrite is about
  std::string_view attributes;  // allowed ones, "name:kind …": see node_rules.def
};

// The rule for an operator form; Unsupported says whether the operator or only its opset is unknown.
Result<const NodeRule*> FindNodeRule(std::string_view domain, std::string_view op_type, int64_t opset);
// Why an operator of the format is not supported by choice (refused_ops.def); empty for others.
std::string_view RefusalReason(std::string_view domain, std::string_view op_type);
// Unsupported for an attribute that the row does not list, Malformed for one of another kind, InvalidArgument for a
// text that is none of the legal ones; the error names attribute, value and the legal ones.
Status CheckAttributes(const NodeRule& rule, const NodeAttributes& attributes);

// The rewrites, by what they treat; each is named by rows of node_rules.def.
#define KILN_REWRITE(name) Result<ValueList> name(NodeContext& node);
#include "vm-worker/onnx/rewrites.def"
#undef KILN_REWRITE

// --- building blocks of rewrites ---
// The element type that an attribute names by the format's number.
Result<DType> DTypeAttribute(NodeContext& node, std::string_view name, DType fallback);
// The dims of `value` as an i64 vector, which is folded where they are known.
Result<ValueId> ShapeOf(ProgramBuilder& b, ValueId value);
// Dim `axis` of it, as a vector of one element.
Result<ValueId> DimOf(ProgramBuilder& b, ValueId value, int64_t axis);
Result<ValueId> CastTo(ProgramBuilder& b, ValueId value, DType dtype);
Result<ValueId> ReshapeTo(ProgramBuilder& b, ValueId value, std::span<const int64_t> shape);
Result<ValueId> TransposeBy(ProgramBuilder& b, ValueId value, std::span<const int64_t> perm);
Result<ValueId> ReduceOver(ProgramBuilder& b, TensorOp op, ValueId value, std::span<const int64_t> axes, bool keepdims);

}  // namespace kiln::onnx

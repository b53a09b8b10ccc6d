// Nodes of operators that a plug-in declares.
#pragma once

#include "common/base/result.h"
#include "common/ops/user_ops.h"
#include "vm-worker/onnx/node_attributes.h"
#include "vm-worker/onnx/program_builder.h"

namespace kiln::onnx {

// A CallFunc node. InvalidArgument for a number of inputs or outputs that the plug-in does not take, Unsupported for
// attributes that are tensors or graphs.
Result<ValueList> EmitUserOp(ProgramBuilder& builder, const UserOp& op, const NodeAttributes& attributes,
                             ValueList inputs, int outputs);

}  // namespace kiln::onnx

// Which values attributes that are texts may have: stated per row of op_attributes.def, and by the importer's table for
// attributes of ONNX that an op does not have, or has by other values.
#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/ops/tensor_op.h"

namespace kiln {

// "a|b|c", where an empty entry is the empty text; "*" allows any text. Empty for attributes that are no texts.
std::string_view LegalTexts(TensorOp op, std::string_view attribute);

// InvalidArgument naming attribute, value and the legal ones, unless `text` is one of them. Elements of lists are the
// activations of recurrent ops, which ONNX's runtimes read in any case: they are compared so.
Status CheckText(std::string_view legal, std::string_view attribute, std::string_view text, bool in_a_list);

}  // namespace kiln

// Tensors as text, bit for bit: `f32[2, 3] = [1.0, …]`, `splat 0.5`, `hex "…"`. Elements are row-major; a NaN that is
// not the plain one is written by its pattern, `nan(0x7fc00001)`.
#pragma once

#include <string>

#include "common/base/result.h"
#include "common/base/text_reader.h"
#include "common/tensor/tensor.h"

namespace kiln {

// Shortest text that reads back to the same bits; always recognisable as a float.
std::string FloatText(double value);
Result<double> ParseFloat(std::string_view text);

// One element, in the form of its dtype.
std::string ElementText(DType dtype, const void* element);
Status ParseElement(DType dtype, std::string_view text, void* element);

// The part after "=": a list up to `list_max` elements, splat where all are equal, else hex. Precondition: contiguous.
std::string TensorDataText(const Tensor& tensor, size_t list_max);
// Reads what TensorDataText writes, for a shape that is already known.
Result<Tensor> ParseTensorData(TextReader& reader, DType dtype, const Dims& dims);
// "f32[2, 3]": a dtype and constant dims whose size is within the limits.
Status ParseStaticShape(TextReader& reader, DType& dtype, Dims& dims);

}  // namespace kiln

// ONNX tensors to Kiln tensors. Also reads the .pb files of test vectors.
#pragma once

#include <filesystem>
#include <string>

#include "common/base/result.h"
#include "common/tensor/tensor.h"
#include "vm-worker/onnx/file_weights.h"

namespace kiln::onnx {

class TensorProto;
class SparseTensorProto;

// The dtype of a TensorProto.DataType number; Unsupported names types that have no row in dtypes.def.
Result<DType> DTypeOfOnnx(int32_t data_type);

// `files`: what the tensor's data may lie in. Data in files stays there where it is aligned for its type; what the
// message holds is copied once into an aligned buffer and released from it. Malformed when the data does not agree with
// the dims.
Result<Tensor> ReadTensor(TensorProto& proto, WeightFiles& files);
// Dense form of a sparse tensor (flat or tuple indices).
Result<Tensor> ReadSparseTensor(SparseTensorProto& proto, WeightFiles& files);

struct NamedTensor {
  std::string name;
  Tensor tensor;
};
// A file that holds one TensorProto. Sequences and optionals are recognised by the caller, from the model's types.
Result<NamedTensor> ReadTensorFile(const std::filesystem::path& path);
Status WriteTensorFile(const std::filesystem::path& path, const NamedTensor& tensor);

}  // namespace kiln::onnx

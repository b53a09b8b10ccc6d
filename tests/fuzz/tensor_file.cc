// What reads as a tensor has the bytes that its dims say.
#include "common/base/check.h"
#include "schemas/onnx.pb.h"
#include "tests/fuzz/fuzz_target.h"
#include "vm-worker/onnx/model_file.h"
#include "vm-worker/onnx/tensor_proto.h"

namespace kiln::fuzz {
namespace {

void Touch(const Result<Tensor>& tensor) {
  if (!tensor) {
    KILN_CHECK(!tensor.error().message.empty());
    return;
  }
  uint8_t sum = 0;
  const auto* bytes = static_cast<const uint8_t*>(tensor->ref.data);
  for (int64_t i = 0; i < tensor->ref.bytes(); ++i) sum = static_cast<uint8_t>(sum + bytes[i]);
  volatile uint8_t kept = sum;
  static_cast<void>(kept);
}

}  // namespace

void TensorFile(std::span<const uint8_t> bytes) {
  onnx::WeightFiles none;
  onnx::TensorProto dense;
  if (onnx::ParseMessage(bytes, "tensor", dense)) Touch(onnx::ReadTensor(dense, none));
  onnx::SparseTensorProto sparse;
  if (onnx::ParseMessage(bytes, "sparse tensor", sparse)) Touch(onnx::ReadSparseTensor(sparse, none));
}

}  // namespace kiln::fuzz

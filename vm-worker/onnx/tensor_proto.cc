#include "vm-worker/onnx/tensor_proto.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <fstream>

#include "common/base/checked_math.h"
#include "common/base/limits.h"
#include "common/tensor/bools.h"
#include "schemas/onnx.pb.h"
#include "vm-worker/onnx/model_file.h"

namespace kiln::onnx {
namespace {

static_assert(std::endian::native == std::endian::little, "raw_data is read in place");

constexpr int32_t kStringType = 8;
constexpr int32_t kExternalLocation = 1;

std::string Describe(const TensorProto& proto) {
  return "tensor '" + proto.name() + "'";
}

Result<Dims> ReadDims(const TensorProto& proto) {
  if (proto.dims_size() > limits::kRankMax) {
    return Fail(ErrorCode::kLimitExceeded, Describe(proto) + " has rank " + std::to_string(proto.dims_size()) +
                                               "; at most " + std::to_string(limits::kRankMax) + " is supported");
  }
  Dims dims;
  for (int64_t dim : proto.dims()) dims.push_back(dim);
  return dims;
}

// Typed fields: `field` holds one entry per element; 16-bit floats are stored as bits in int32_data.
template <class T, class Field>
Status CopyField(const TensorProto& proto, const Field& field, Tensor& tensor) {
  if (field.size() != tensor.ref.elements()) {
    return Fail(ErrorCode::kMalformed, Describe(proto) + " has " + std::to_string(field.size()) +
                                           " values where its shape " + tensor.dims().ToString() + " needs " +
                                           std::to_string(tensor.ref.elements()));
  }
  T* out = tensor.ref.as<T>();
  for (const auto& value : field) *out++ = static_cast<T>(value);
  return {};
}

Status CopyTypedFields(const TensorProto& proto, Tensor& tensor) {
  switch (tensor.dtype()) {
    case DType::kF32:
      return CopyField<float>(proto, proto.float_data(), tensor);
    case DType::kF64:
      return CopyField<double>(proto, proto.double_data(), tensor);
    case DType::kI64:
      return CopyField<int64_t>(proto, proto.int64_data(), tensor);
    case DType::kU64:
      return CopyField<uint64_t>(proto, proto.uint64_data(), tensor);
    case DType::kU32:
      return CopyField<uint32_t>(proto, proto.uint64_data(), tensor);
    case DType::kI32:
      return CopyField<int32_t>(proto, proto.int32_data(), tensor);
    case DType::kI16:
      return CopyField<int16_t>(proto, proto.int32_data(), tensor);
    case DType::kU16:
      return CopyField<uint16_t>(proto, proto.int32_data(), tensor);
    case DType::kI8:
      return CopyField<int8_t>(proto, proto.int32_data(), tensor);
    case DType::kU8:
      return CopyField<uint8_t>(proto, proto.int32_data(), tensor);
    case DType::kBool:
      return CopyField<bool>(proto, proto.int32_data(), tensor);
    case DType::kF16:
    case DType::kBF16:
      return CopyField<uint16_t>(proto, proto.int32_data(), tensor);
  }
  return Fail(ErrorCode::kInternal, "a dtype without a TensorProto field");
}

std::optional<int64_t> ParseCount(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// Bytes [offset, offset + length) of a file as a tensor: in place where they are aligned for their type, else copied.
// Bools are copied, to be normalised.
Result<Tensor> TensorInFile(const std::shared_ptr<const MappedFile>& file, uint64_t offset, uint64_t length,
                            DType dtype, const Dims& dims) {
  const std::span<const uint8_t> data = file->bytes();
  if (offset > data.size() || length > data.size() - offset) {
    return Fail(ErrorCode::kMalformed, "ends at byte " + std::to_string(offset) + "+" + std::to_string(length) +
                                           " of a file that has " + std::to_string(data.size()));
  }
  uint8_t* start = const_cast<uint8_t*>(data.data()) + offset;
  Tensor tensor;
  if (length > 0 && dtype != DType::kBool &&
      reinterpret_cast<uintptr_t>(start) % static_cast<uintptr_t>(DTypeBytes(dtype)) == 0) {
    tensor.buffer = Buffer::Wrap(start, length, file);
    tensor.ref = MakeRef(dtype, dims, start);
    return tensor;
  }
  tensor = Tensor::Allocate(dtype, dims);
  if (length > 0) std::memcpy(tensor.ref.data, start, length);
  NormaliseBools(tensor);
  return tensor;
}

Result<Tensor> ReadExternal(const TensorProto& proto, DType dtype, const Dims& dims, int64_t bytes,
                            WeightFiles& files) {
  std::string location;
  int64_t offset = 0;
  int64_t length = bytes;
  for (const StringStringEntryProto& entry : proto.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() != "offset" && entry.key() != "length") continue;
    const std::optional<int64_t> value = ParseCount(entry.value());
    if (!value)
      return Fail(ErrorCode::kMalformed, Describe(proto) + " has external " + entry.key() + " '" + entry.value() + "'");
    (entry.key() == "offset" ? offset : length) = *value;
  }
  if (length != bytes) {
    return Fail(ErrorCode::kMalformed, Describe(proto) + " has " + std::to_string(length) +
                                           " external bytes where its shape needs " + std::to_string(bytes));
  }
  if (!files.has_directory()) {
    return Fail(ErrorCode::kInvalidArgument, Describe(proto) + " keeps its data in '" + location +
                                                 "'; load the model from its file, not from bytes");
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, files.External(location));
  auto tensor = TensorInFile(file, static_cast<uint64_t>(offset), static_cast<uint64_t>(length), dtype, dims);
  if (!tensor.has_value()) return FailIn(Describe(proto) + " in '" + location + "'", tensor.error());
  return tensor;
}

// The bytes its message must hold for its shape.
Status CheckRawBytes(const TensorProto& proto, uint64_t held, int64_t bytes, const Dims& dims) {
  if (held == static_cast<uint64_t>(bytes)) return {};
  return Fail(ErrorCode::kMalformed, Describe(proto) + " has " + std::to_string(held) +
                                         " bytes of data where its shape " + dims.ToString() + " needs " +
                                         std::to_string(bytes));
}

}  // namespace

Result<DType> DTypeOfOnnx(int32_t data_type) {
  if (const std::optional<DType> dtype = DTypeFromNumber(data_type)) return *dtype;
  if (data_type == kStringType) return Fail(ErrorCode::kUnsupported, "strings are not supported");
  return Fail(data_type > 0 ? ErrorCode::kUnsupported : ErrorCode::kMalformed,
              "element type number " + std::to_string(data_type) + " is not supported");
}

Result<Tensor> ReadTensor(TensorProto& proto, WeightFiles& files) {
  auto dtype = DTypeOfOnnx(proto.data_type());
  if (!dtype.has_value()) return FailIn(Describe(proto), dtype.error());
  ASSIGN_OR_RETURN(const Dims dims, ReadDims(proto));
  auto elements = CheckedElements(dims, *dtype);
  if (!elements.has_value()) return FailIn(Describe(proto), elements.error());
  const int64_t bytes = *elements * DTypeBytes(*dtype);
  if (proto.data_location() == kExternalLocation) return ReadExternal(proto, *dtype, dims, bytes, files);

  if (proto.has_raw_offset() && files.model() != nullptr && !proto.has_raw_data()) {
    RETURN_IF_ERROR(CheckRawBytes(proto, proto.raw_bytes(), bytes, dims));
    auto tensor = TensorInFile(files.model(), proto.raw_offset(), proto.raw_bytes(), *dtype, dims);
    if (!tensor.has_value()) return FailIn(Describe(proto), tensor.error());
    return tensor;
  }
  // Before any allocation: the message must hold as many values as the shape claims.
  if (proto.has_raw_data() && !(proto.raw_data().empty() && bytes > 0)) {
    RETURN_IF_ERROR(CheckRawBytes(proto, proto.raw_data().size(), bytes, dims));
    Tensor tensor = Tensor::Allocate(*dtype, dims);
    if (bytes > 0) std::memcpy(tensor.ref.data, proto.raw_data().data(), static_cast<size_t>(bytes));
    NormaliseBools(tensor);
    proto.clear_raw_data();
    return tensor;
  }
  const int64_t values =
      std::max({int64_t{proto.float_data_size()}, int64_t{proto.int32_data_size()}, int64_t{proto.int64_data_size()},
                int64_t{proto.double_data_size()}, int64_t{proto.uint64_data_size()}});
  if (values != *elements) {
    return Fail(ErrorCode::kMalformed, Describe(proto) + " has " + std::to_string(values) + " values where its shape " +
                                           dims.ToString() + " needs " + std::to_string(*elements));
  }
  Tensor tensor = Tensor::Allocate(*dtype, dims);
  RETURN_IF_ERROR(CopyTypedFields(proto, tensor));
  return tensor;
}

Result<Tensor> ReadSparseTensor(SparseTensorProto& proto, WeightFiles& files) {
  ASSIGN_OR_RETURN(const Tensor values, ReadTensor(*proto.mutable_values(), files));
  ASSIGN_OR_RETURN(const Tensor indices, ReadTensor(*proto.mutable_indices(), files));
  const std::string name = "sparse " + Describe(proto.values());
  if (proto.dims_size() > limits::kRankMax) return Fail(ErrorCode::kLimitExceeded, name + " has too many dims");
  Dims dims;
  for (int64_t dim : proto.dims()) dims.push_back(dim);
  auto elements = CheckedElements(dims, values.dtype());
  if (!elements.has_value()) return FailIn(name, elements.error());
  const int64_t count = values.ref.elements();
  const int width = indices.dims().rank() == 2 ? dims.rank() : 1;
  if (values.dims().rank() != 1 || indices.dtype() != DType::kI64 || indices.ref.elements() != count * width ||
      indices.dims().rank() < 1 || indices.dims().rank() > 2) {
    return Fail(ErrorCode::kMalformed, name + " has indices that do not fit its values and dims");
  }
  // A few bytes could otherwise ask for gigabytes of zeros.
  const int64_t most =
      std::min(limits::kSparseElementsMax, limits::kSparseElementsFree + count * limits::kSparseExpansionMax);
  if (*elements > most)
    return Fail(ErrorCode::kLimitExceeded, name + " has " + std::to_string(*elements) + " elements for " +
                                               std::to_string(count) + " values; the limit is " + std::to_string(most) +
                                               "; store it as a dense tensor");
  Tensor dense = Tensor::Zeros(values.dtype(), dims);
  const Dims strides = ContiguousStrides(dims);
  const size_t size = static_cast<size_t>(DTypeBytes(values.dtype()));
  for (int64_t i = 0; i < count; ++i) {
    int64_t flat = 0;
    const int64_t* index = indices.ref.as<int64_t>() + i * width;
    for (int d = 0; d < width; ++d) {
      const int64_t limit = indices.dims().rank() == 2 ? dims[d] : *elements;
      if (index[d] < 0 || index[d] >= limit)
        return Fail(ErrorCode::kMalformed, name + " has an index outside its dims");
      flat += indices.dims().rank() == 2 ? index[d] * strides[d] : index[d];
    }
    std::memcpy(dense.ref.as<uint8_t>() + static_cast<size_t>(flat) * size,
                values.ref.as<uint8_t>() + static_cast<size_t>(i) * size, size);
  }
  return dense;
}

Result<NamedTensor> ReadTensorFile(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> file, MappedFile::Open(path));
  const std::string_view begin(reinterpret_cast<const char*>(file->bytes().data()),
                               std::min<size_t>(file->bytes().size(), 16));
  if (begin.starts_with("\x93NUMPY") || begin.starts_with("PK\x03\x04"))
    return Fail(ErrorCode::kInvalidArgument,
                path.string() +
                    " is a file of NumPy; a tensor is given as ONNX TensorProto: in Python "
                    "onnx.numpy_helper.from_array(numpy.load(FILE)).SerializeToString()");
  TensorProto proto;
  RETURN_IF_ERROR(ParseMessage(file->bytes(), path.string(), proto));
  WeightFiles none;
  auto tensor = ReadTensor(proto, none);
  if (!tensor.has_value()) return FailIn(path.string(), tensor.error());
  return NamedTensor{proto.name(), *std::move(tensor)};
}

Status WriteTensorFile(const std::filesystem::path& path, const NamedTensor& tensor) {
  TensorProto proto;
  proto.set_name(tensor.name);
  proto.set_data_type(static_cast<int32_t>(tensor.tensor.dtype()));
  for (int64_t dim : tensor.tensor.dims()) proto.add_dims(dim);
  const Tensor contiguous = MakeContiguous(tensor.tensor.ref);
  proto.set_raw_data(contiguous.ref.data, static_cast<size_t>(contiguous.ref.bytes()));
  std::ofstream out(path, std::ios::binary);
  if (!out || !proto.SerializeToOstream(&out) || !out.flush()) {
    return Fail(ErrorCode::kIoError, path.string() + ": cannot write");
  }
  return {};
}

}  // namespace kiln::onnx

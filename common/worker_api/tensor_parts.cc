#include "common/worker_api/tensor_parts.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "common/base/checked_math.h"
#include "common/tensor/bools.h"

namespace kiln {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

std::string Text(const flatbuffers::String* text) {
  return text == nullptr ? std::string() : text->str();
}

Result<DType> DTypeOf(uint8_t number, const std::string& name) {
  const std::optional<DType> dtype = DTypeFromNumber(number);
  if (!dtype)
    return Fail(ErrorCode::kMalformed, "tensor \"" + name + "\" has unknown dtype number " + std::to_string(number));
  return *dtype;
}

std::vector<Offset<fbs::TensorPart>> EncodeTensors(FlatBufferBuilder& builder, const std::vector<NamedTensor>& tensors,
                                                   std::vector<Bytes>& blobs) {
  std::vector<Offset<fbs::TensorPart>> list;
  for (const NamedTensor& named : tensors) {
    const TensorRef& ref = named.tensor.ref;
    const auto* data = ref.as<const uint8_t>();
    const auto dims = builder.CreateVector(ref.dims.begin(), ref.dims.size());
    list.push_back(fbs::CreateTensorPart(builder, builder.CreateString(named.name), static_cast<uint8_t>(ref.dtype),
                                         dims, static_cast<int32_t>(blobs.size())));
    blobs.emplace_back(data, data + ref.bytes());
  }
  return list;
}

Result<std::unique_ptr<SharedObject>> SharedObject::Create(int64_t bytes) {
  static std::atomic<uint64_t> next{0};
  const std::string name = "/kiln-" + std::to_string(getpid()) + "-" + std::to_string(next++);
  const int file = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return Fail(ErrorCode::kIoError, "cannot make shared memory " + name + ": " + std::strerror(errno));
  std::unique_ptr<SharedObject> object(new SharedObject(name, file));
  if (ftruncate(file, std::max<int64_t>(bytes, 1)) != 0)
    return Fail(ErrorCode::kResourceExhausted,
                "shared memory has no room for " + std::to_string(bytes) + " bytes: " + std::strerror(errno));
  return object;
}
SharedObject::~SharedObject() {
  close(file_);
  shm_unlink(name_.c_str());
}

Status SharedObject::Write(const TensorRef& tensor, int64_t offset) {
  const char* next = tensor.as<const char>();
  for (int64_t left = tensor.bytes(); left > 0;) {
    const ssize_t put = pwrite(file_, next, static_cast<size_t>(left), offset);
    if (put <= 0) return Fail(ErrorCode::kIoError, "cannot write shared memory " + name_ + ": " + std::strerror(errno));
    next += put;
    left -= put;
    offset += put;
  }
  return {};
}

namespace {

// Bytes of an open shared memory object, by reading rather than by mapping: a peer that shortens the object meanwhile
// causes an error, not a fault. Nothing is allocated before the object is known to hold the tensor.
Result<Tensor> ReadTensorFrom(int file, const std::string& object, uint64_t offset, DType dtype, const Dims& dims) {
  struct stat about{};
  const uint64_t bytes = static_cast<uint64_t>(NumElements(dims) * DTypeBytes(dtype));
  if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode) || static_cast<uint64_t>(about.st_size) < bytes ||
      offset > static_cast<uint64_t>(about.st_size) - bytes)
    return Fail(ErrorCode::kInvalidArgument, "shared memory " + object + " has no " + std::to_string(bytes) +
                                                 " bytes at offset " + std::to_string(offset));
  Tensor tensor = Tensor::Allocate(dtype, dims);
  auto* next = tensor.ref.as<char>();
  for (uint64_t left = bytes; left > 0;) {
    const ssize_t got = pread(file, next, left, static_cast<off_t>(offset));
    if (got <= 0) return Fail(ErrorCode::kInvalidArgument, "shared memory " + object + " ends before the tensor does");
    next += got;
    left -= static_cast<uint64_t>(got);
    offset += static_cast<uint64_t>(got);
  }
  return tensor;
}

Result<Tensor> ReadSharedMemory(const std::string& object, uint64_t offset, DType dtype, const Dims& dims) {
  if (object.size() < 2 || object[0] != '/' || object.find('/', 1) != std::string::npos)
    return Fail(ErrorCode::kInvalidArgument, "shared memory name \"" + object + "\" must be / followed by a name");
  const int file = shm_open(object.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
  if (file < 0) return Fail(ErrorCode::kNotFound, "cannot open shared memory " + object + ": " + std::strerror(errno));
  Result<Tensor> tensor = ReadTensorFrom(file, object, offset, dtype, dims);
  close(file);
  return tensor;
}

}  // namespace

Status DecodeTensors(const flatbuffers::Vector<Offset<fbs::TensorPart>>* list, const std::vector<Bytes>& blobs,
                     std::vector<NamedTensor>& tensors) {
  tensors.clear();
  if (list == nullptr) return {};
  std::vector<bool> used(blobs.size());
  int64_t shared_bytes = 0;
  for (const fbs::TensorPart* part : *list) {
    NamedTensor named;
    named.name = Text(part->name());
    const std::string label = "tensor \"" + named.name + "\"";
    ASSIGN_OR_RETURN(DType dtype, DTypeOf(part->dtype(), named.name));
    const size_t rank = part->dims() == nullptr ? 0 : part->dims()->size();
    if (rank > static_cast<size_t>(limits::kRankMax))
      return Fail(ErrorCode::kLimitExceeded,
                  label + " has rank " + std::to_string(rank) + "; the limit is " + std::to_string(limits::kRankMax));
    Dims dims;
    for (size_t d = 0; d < rank; ++d) dims.push_back(part->dims()->Get(static_cast<flatbuffers::uoffset_t>(d)));
    const Result<int64_t> elements = CheckedElements(dims, dtype);
    if (!elements.has_value()) return FailIn(label, elements.error());
    const int64_t bytes = *elements * DTypeBytes(dtype);
    if (part->shm_name() != nullptr) {
      shared_bytes += bytes;
      if (shared_bytes > static_cast<int64_t>(limits::kModelBytesMax))
        return Fail(ErrorCode::kLimitExceeded, label + " brings the tensors in shared memory above the limit of " +
                                                   std::to_string(limits::kModelBytesMax) + " bytes");
      ASSIGN_OR_RETURN(named.tensor, ReadSharedMemory(Text(part->shm_name()), part->shm_offset(), dtype, dims));
    } else {
      if (part->part() < 0 || static_cast<size_t>(part->part()) >= blobs.size())
        return Fail(ErrorCode::kMalformed, label + " refers to message part " + std::to_string(part->part()) + " of " +
                                               std::to_string(blobs.size()));
      const auto number = static_cast<size_t>(part->part());
      // Or a small message would unfold into many large tensors.
      if (used[number])
        return Fail(ErrorCode::kMalformed,
                    label + " refers to message part " + std::to_string(number) + " as another does");
      used[number] = true;
      const Bytes& blob = blobs[number];
      if (static_cast<int64_t>(blob.size()) != bytes)
        return Fail(ErrorCode::kMalformed, label + " needs " + std::to_string(bytes) + " bytes for " + dims.ToString() +
                                               ", its part has " + std::to_string(blob.size()));
      named.tensor = Tensor::Allocate(dtype, dims);
      if (bytes > 0) std::memcpy(named.tensor.ref.data, blob.data(), blob.size());
    }
    NormaliseBools(named.tensor);
    tensors.push_back(std::move(named));
  }
  return {};
}

}  // namespace kiln

#include "common/worker_api/tensor_parts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "common/base/checked_math.h"
#include "common/base/limits.h"
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

namespace {

// Names of shared memory are capabilities: 128 random bits that only the two peers of a message know. The process id in
// front of them tells whose leftovers are whose.
constexpr std::string_view kSharedPrefix = "/kiln-";
constexpr size_t kSharedNameBytes = 16;

bool IsSharedName(std::string_view name) {
  if (!name.starts_with(kSharedPrefix)) return false;
  name.remove_prefix(kSharedPrefix.size());
  const size_t dash = name.find_first_not_of("0123456789");
  if (dash == 0 || dash == std::string_view::npos || name[dash] != '-') return false;
  name.remove_prefix(dash + 1);
  return name.size() == 2 * kSharedNameBytes && name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

Result<std::unique_ptr<SharedObject>> SharedObject::Create(int64_t bytes) {
  std::array<uint8_t, kSharedNameBytes> random{};
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    return Fail(ErrorCode::kIoError,
                std::string("no random numbers for a name of shared memory: ") + std::strerror(errno));
  std::string name = fmt::format("{}{}-", kSharedPrefix, getpid());
  for (uint8_t byte : random) name += fmt::format("{:02x}", byte);
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
  if (!IsSharedName(object))
    return Fail(ErrorCode::kInvalidArgument,
                "shared memory name \"" + object +
                    "\" is not /kiln-PID- and 32 hexadecimal digits, as clients make them; "
                    "send the tensor as a message part instead");
  const int file = shm_open(object.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
  if (file < 0) return Fail(ErrorCode::kNotFound, "cannot open shared memory " + object + ": " + std::strerror(errno));
  Result<Tensor> tensor = ReadTensorFrom(file, object, offset, dtype, dims);
  close(file);
  return tensor;
}

}  // namespace

namespace {

// What a tensor of a message says of itself, checked.
struct Announced {
  DType dtype{};
  Dims dims;
  int64_t bytes = 0;
};
Result<Announced> ReadAnnounced(const fbs::TensorPart& part, const std::string& name) {
  Announced announced;
  ASSIGN_OR_RETURN(announced.dtype, DTypeOf(part.dtype(), name));
  const size_t rank = part.dims() == nullptr ? 0 : part.dims()->size();
  if (rank > static_cast<size_t>(limits::kRankMax))
    return Fail(ErrorCode::kLimitExceeded,
                "rank " + std::to_string(rank) + " exceeds the limit of " + std::to_string(limits::kRankMax));
  for (size_t d = 0; d < rank; ++d) announced.dims.push_back(part.dims()->Get(static_cast<flatbuffers::uoffset_t>(d)));
  ASSIGN_OR_RETURN(const int64_t elements, CheckedElements(announced.dims, announced.dtype));
  announced.bytes = elements * DTypeBytes(announced.dtype);
  return announced;
}

Result<Tensor> ReadPart(const fbs::TensorPart& part, const Announced& announced, const std::vector<Bytes>& blobs,
                        std::vector<bool>& taken) {
  if (part.shm_name() != nullptr)
    return ReadSharedMemory(Text(part.shm_name()), part.shm_offset(), announced.dtype, announced.dims);
  const auto index = static_cast<size_t>(part.part());
  if (part.part() < 0 || index >= blobs.size())
    return Fail(ErrorCode::kMalformed,
                "refers to message part " + std::to_string(part.part()) + " of " + std::to_string(blobs.size()));
  if (taken[index])
    return Fail(ErrorCode::kMalformed,
                "refers to message part " + std::to_string(index) + ", which another tensor has");
  taken[index] = true;
  const Bytes& blob = blobs[index];
  if (static_cast<int64_t>(blob.size()) != announced.bytes)
    return Fail(ErrorCode::kMalformed, "needs " + std::to_string(announced.bytes) + " bytes for " +
                                           announced.dims.ToString() + ", its part has " + std::to_string(blob.size()));
  Tensor tensor = Tensor::Allocate(announced.dtype, announced.dims);
  if (announced.bytes > 0) std::memcpy(tensor.ref.data, blob.data(), blob.size());
  return tensor;
}

// Each tensor, checked; and room for all of them.
Result<std::vector<Announced>> ReadAllAnnounced(const flatbuffers::Vector<Offset<fbs::TensorPart>>& list,
                                                TensorRoom* room) {
  if (list.size() > limits::kMessagePartsMax)
    return Fail(ErrorCode::kLimitExceeded, "message has " + std::to_string(list.size()) + " tensors; the limit is " +
                                               std::to_string(limits::kMessagePartsMax));
  const int64_t shared_max =
      std::min(static_cast<int64_t>(limits::kModelBytesMax), room == nullptr ? INT64_MAX : room->shared_bytes_max);
  std::vector<Announced> all;
  int64_t bytes = 0, shared_bytes = 0;  // each tensor is below 2^40 bytes, and there are few
  for (const fbs::TensorPart* part : list) {
    const std::string name = Text(part->name());
    Result<Announced> announced = ReadAnnounced(*part, name);
    if (!announced.has_value()) return FailIn("tensor \"" + name + "\"", announced.error());
    bytes += announced->bytes;
    if (part->shm_name() != nullptr) shared_bytes += announced->bytes;
    if (shared_bytes > shared_max)
      return Fail(ErrorCode::kLimitExceeded, "tensor \"" + name + "\" brings the message's shared memory to " +
                                                 std::to_string(shared_bytes) + " bytes; the limit is " +
                                                 std::to_string(shared_max));
    all.push_back(*std::move(announced));
  }
  if (room != nullptr) {
    ASSIGN_OR_RETURN(room->charge, ChargeRequest(room->budget, bytes));
  }
  return all;
}

}  // namespace

Status DecodeTensors(const flatbuffers::Vector<Offset<fbs::TensorPart>>* list, const std::vector<Bytes>& blobs,
                     std::vector<NamedTensor>& tensors, TensorRoom* room) {
  tensors.clear();
  if (list == nullptr) return {};
  ASSIGN_OR_RETURN(const std::vector<Announced> announced, ReadAllAnnounced(*list, room));
  std::vector<bool> taken(blobs.size(), false);
  for (flatbuffers::uoffset_t i = 0; i < list->size(); ++i) {
    NamedTensor named;
    named.name = Text(list->Get(i)->name());
    Result<Tensor> tensor = ReadPart(*list->Get(i), announced[i], blobs, taken);
    if (!tensor.has_value()) return FailIn("tensor \"" + named.name + "\"", tensor.error());
    named.tensor = std::move(*tensor);
    NormaliseBools(named.tensor);
    tensors.push_back(std::move(named));
  }
  return {};
}

}  // namespace kiln

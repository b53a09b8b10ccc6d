#include "common/bytecode/weights.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace kiln {
namespace {

std::unexpected<Error> SystemError(const std::string& path, const char* call) {
  const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIoError;
  return Fail(code, path + ": " + call + ": " + std::strerror(errno));
}

}  // namespace

Result<std::shared_ptr<Buffer>> BufferWeights::Fetch(uint64_t offset, uint64_t length) {
  const uint64_t size = bytes_->size();
  if (offset > size || length > size - offset) {
    return Fail(ErrorCode::kOutOfRange, "weight bytes " + std::to_string(offset) + " + " + std::to_string(length) +
                                            " lie outside the " + std::to_string(size) + " bytes of the weight file");
  }
  return Buffer::Wrap(static_cast<uint8_t*>(bytes_->data()) + offset, length, bytes_);
}

Result<std::shared_ptr<Buffer>> MapFile(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return SystemError(path, "open");
  struct stat info{};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return Fail(ErrorCode::kIoError, path + " is no regular file");
  }
  const size_t size = static_cast<size_t>(info.st_size);
  if (size == 0) {
    ::close(fd);
    return Buffer::Allocate(0);
  }
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  ::close(fd);
  if (data == MAP_FAILED) return SystemError(path, "mmap");
  std::shared_ptr<const void> mapping(data,
                                      [size](const void* address) { ::munmap(const_cast<void*>(address), size); });
  return Buffer::Wrap(data, size, std::move(mapping));
}

Result<Tensor> FetchWeight(WeightSource* source, DType dtype, const Dims& dims, uint64_t offset) {
  ASSIGN_OR_RETURN(const int64_t elements, CheckedElements(dims, dtype));
  if (source == nullptr) {
    return Fail(ErrorCode::kInvalidArgument, "it lies in a weight file, but none is given");
  }
  ASSIGN_OR_RETURN(auto buffer, source->Fetch(offset, static_cast<uint64_t>(elements * DTypeBytes(dtype))));
  if (reinterpret_cast<uintptr_t>(buffer->data()) % static_cast<uintptr_t>(DTypeBytes(dtype)) != 0) {
    auto copy = Buffer::Allocate(buffer->size());
    if (buffer->size() > 0) std::memcpy(copy->data(), buffer->data(), buffer->size());
    buffer = std::move(copy);
  }
  const TensorRef ref = MakeRef(dtype, dims, buffer->data());
  return Tensor{ref, std::move(buffer)};
}

}  // namespace kiln

#include "common/tensor/tensor.h"

#include <sys/mman.h>

#include <cstring>
#include <new>

#include "common/base/check.h"
#include "common/base/checked_math.h"

namespace kiln {

Dims::Dims(std::initializer_list<int64_t> values) : Dims(std::span<const int64_t>(values.begin(), values.size())) {}

Dims::Dims(std::span<const int64_t> values) {
  KILN_CHECK(values.size() <= static_cast<size_t>(limits::kRankMax));
  std::copy(values.begin(), values.end(), values_.begin());
  rank_ = static_cast<int>(values.size());
}

Dims Dims::Filled(int rank, int64_t value) {
  KILN_CHECK(rank >= 0 && rank <= limits::kRankMax);
  Dims dims;
  dims.rank_ = rank;
  std::fill(dims.begin(), dims.end(), value);
  return dims;
}

void Dims::push_back(int64_t value) {
  KILN_CHECK(rank_ < limits::kRankMax);
  values_[static_cast<size_t>(rank_++)] = value;
}

bool Dims::operator==(const Dims& other) const {
  return rank_ == other.rank_ && std::equal(begin(), end(), other.begin());
}

std::string Dims::ToString() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string((*this)[i]);
  }
  return text + "]";
}

int64_t NumElements(const Dims& dims) {
  int64_t product = 1;
  for (int64_t dim : dims) product *= dim;
  return product;
}

Result<int64_t> CheckedElements(const Dims& dims, DType dtype) {
  // A zero anywhere makes the tensor empty, but the other dims must still be plausible: strides are their products.
  int64_t elements = 1;
  int64_t bytes = DTypeBytes(dtype);
  bool empty = false;
  for (int64_t dim : dims) {
    if (dim < 0) {
      return Fail(ErrorCode::kInvalidArgument,
                  "dim " + std::to_string(dim) + " of " + dims.ToString() + " is negative; sizes start at 0");
    }
    if (dim == 0) {
      empty = true;
      continue;
    }
    const auto next = CheckedMul(bytes, dim);
    if (!next || *next > limits::kTensorBytesMax) {
      return Fail(ErrorCode::kLimitExceeded, "a tensor " + std::string(DTypeName(dtype)) + dims.ToString() +
                                                 " passes the limit of " + std::to_string(limits::kTensorBytesMax) +
                                                 " bytes");
    }
    bytes = *next;
    elements *= dim;
  }
  return empty ? 0 : elements;
}

Dims ContiguousStrides(const Dims& dims) {
  Dims strides = Dims::Filled(dims.rank(), 1);
  for (int i = dims.rank() - 2; i >= 0; --i) strides[i] = strides[i + 1] * dims[i + 1];
  return strides;
}

bool TensorRef::IsContiguous() const {
  int64_t expected = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (dims[i] == 0) return true;
  }
  for (int i = rank() - 1; i >= 0; --i) {
    if (dims[i] != 1 && strides[i] != expected) return false;
    expected *= dims[i];
  }
  return true;
}

TensorRef MakeRef(DType dtype, const Dims& dims, void* data) {
  return {dtype, dims, ContiguousStrides(dims), data};
}

namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// Large buffers begin where a huge page may lie.
std::align_val_t AlignmentOf(size_t bytes) {
  return std::align_val_t{bytes >= kHugePage ? kHugePage : size_t{64}};
}

}  // namespace

Buffer::Buffer(void* data, size_t size, bool owned, std::shared_ptr<const void> keep_alive)
    : data_(data), size_(size), owned_(owned), keep_alive_(std::move(keep_alive)) {}

Buffer::~Buffer() {
  if (owned_) ::operator delete(data_, AlignmentOf(size_));
}

std::shared_ptr<Buffer> Buffer::Allocate(size_t bytes) {
  void* data = ::operator new(std::max<size_t>(bytes, 1), AlignmentOf(bytes));
  if (bytes >= kHugePage) (void)madvise(data, bytes, MADV_HUGEPAGE);  // only speed depends on it
  return std::shared_ptr<Buffer>(new Buffer(data, bytes, true, nullptr));
}

std::shared_ptr<Buffer> Buffer::Wrap(void* data, size_t bytes, std::shared_ptr<const void> keep_alive) {
  return std::shared_ptr<Buffer>(new Buffer(data, bytes, false, std::move(keep_alive)));
}

Tensor Tensor::Allocate(DType dtype, const Dims& dims) {
  auto buffer = Buffer::Allocate(static_cast<size_t>(NumElements(dims) * DTypeBytes(dtype)));
  TensorRef ref = MakeRef(dtype, dims, buffer->data());
  return {ref, std::move(buffer)};
}

Tensor Tensor::Zeros(DType dtype, const Dims& dims) {
  Tensor tensor = Allocate(dtype, dims);
  std::memset(tensor.buffer->data(), 0, tensor.buffer->size());
  return tensor;
}

namespace {

// The dims of a copy after dropping those of size 1 and merging neighbours that are dense in both tensors.
struct CopyLoop {
  int rank = 0;
  std::array<int64_t, limits::kRankMax> dims, from, to;
};

CopyLoop Collapse(const TensorRef& from, const TensorRef& to) {
  CopyLoop loop;
  for (int i = 0; i < from.rank(); ++i) {
    if (from.dims[i] == 1) continue;
    if (loop.rank > 0) {
      const size_t last = static_cast<size_t>(loop.rank - 1);
      if (loop.from[last] == from.strides[i] * from.dims[i] && loop.to[last] == to.strides[i] * from.dims[i]) {
        loop.dims[last] *= from.dims[i];
        loop.from[last] = from.strides[i];
        loop.to[last] = to.strides[i];
        continue;
      }
    }
    const size_t next = static_cast<size_t>(loop.rank++);
    loop.dims[next] = from.dims[i];
    loop.from[next] = from.strides[i];
    loop.to[next] = to.strides[i];
  }
  return loop;
}

template <class Word>
void CopyRow(const Word* from, int64_t from_stride, Word* to, int64_t to_stride, int64_t count) {
  if (from_stride == 1 && to_stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(Word));
  } else if (from_stride == 0 && to_stride == 1) {
    std::fill_n(to, count, *from);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i * to_stride] = from[i * from_stride];
  }
}

template <class Word>
void CopyWords(const CopyLoop& loop, const Word* from, Word* to) {
  if (loop.rank == 0) {
    *to = *from;
    return;
  }
  const size_t inner = static_cast<size_t>(loop.rank - 1);
  std::array<int64_t, limits::kRankMax> index{};
  for (;;) {
    CopyRow(from, loop.from[inner], to, loop.to[inner], loop.dims[inner]);
    size_t axis = inner;
    for (;;) {
      if (axis == 0) return;
      --axis;
      from += loop.from[axis];
      to += loop.to[axis];
      if (++index[axis] < loop.dims[axis]) break;
      from -= loop.from[axis] * loop.dims[axis];
      to -= loop.to[axis] * loop.dims[axis];
      index[axis] = 0;
    }
  }
}

}  // namespace

void CopyElements(const TensorRef& from, const TensorRef& to) {
  KILN_CHECK(from.dtype == to.dtype && from.dims == to.dims);
  if (from.elements() == 0) return;
  const CopyLoop loop = Collapse(from, to);
  switch (DTypeBytes(from.dtype)) {
    case 1:
      return CopyWords(loop, from.as<const uint8_t>(), to.as<uint8_t>());
    case 2:
      return CopyWords(loop, from.as<const uint16_t>(), to.as<uint16_t>());
    case 4:
      return CopyWords(loop, from.as<const uint32_t>(), to.as<uint32_t>());
    case 8:
      return CopyWords(loop, from.as<const uint64_t>(), to.as<uint64_t>());
  }
}

Tensor MakeContiguous(const TensorRef& from) {
  Tensor copy = Tensor::Allocate(from.dtype, from.dims);
  CopyElements(from, copy.ref);
  return copy;
}

}  // namespace kiln

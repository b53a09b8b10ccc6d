// Run-time tensors: dims, a strided non-owning view, and an owning value.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include "common/base/limits.h"
#include "common/base/result.h"
#include "common/tensor/dtype.h"

namespace kiln {

// Up to kRankMax int64 values in place; used for dims (>= 0) and for strides (in elements, may be 0 or negative).
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<int64_t> values);
  explicit Dims(std::span<const int64_t> values);  // precondition: at most kRankMax values
  static Dims Filled(int rank, int64_t value);

  int rank() const { return rank_; }
  size_t size() const { return static_cast<size_t>(rank_); }
  bool empty() const { return rank_ == 0; }
  int64_t& operator[](int i) { return values_[static_cast<size_t>(i)]; }
  int64_t operator[](int i) const { return values_[static_cast<size_t>(i)]; }
  const int64_t* begin() const { return values_.data(); }
  const int64_t* end() const { return values_.data() + rank_; }
  int64_t* begin() { return values_.data(); }
  int64_t* end() { return values_.data() + rank_; }
  int64_t back() const { return values_[static_cast<size_t>(rank_ - 1)]; }
  void push_back(int64_t value);  // precondition: rank() < kRankMax
  std::span<const int64_t> span() const { return {values_.data(), size()}; }
  bool operator==(const Dims& other) const;
  std::string ToString() const;  // "[2, 3]"

 private:
  std::array<int64_t, limits::kRankMax> values_{};
  int rank_ = 0;
};

// Product of dims. Precondition: it was checked with CheckedElements where dims come from input.
int64_t NumElements(const Dims& dims);
// LimitExceeded if the product overflows or the tensor would pass kTensorBytesMax; InvalidArgument for a negative dim.
Result<int64_t> CheckedElements(const Dims& dims, DType dtype);
// Row-major strides in elements.
Dims ContiguousStrides(const Dims& dims);

// Non-owning, strided view of elements. `data` points at element [0, 0, …]; strides are in elements and may be 0
// (broadcast) or negative. Copyable; says nothing about lifetime.
struct TensorRef {
  DType dtype = DType::kF32;
  Dims dims;
  Dims strides;
  void* data = nullptr;

  int rank() const { return dims.rank(); }
  int64_t elements() const { return NumElements(dims); }
  int64_t bytes() const { return elements() * DTypeBytes(dtype); }
  // Row-major without gaps; strides of dims of size 1 are ignored, an empty tensor is contiguous.
  bool IsContiguous() const;
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

// Contiguous view over existing memory.
TensorRef MakeRef(DType dtype, const Dims& dims, void* data);

// 64-byte aligned bytes (also at size 0), uninitialised; from 2 MB on they lie on huge pages where the host allows.
class Buffer {
 public:
  static std::shared_ptr<Buffer> Allocate(size_t bytes);  // throws std::bad_alloc like operator new
  // Wraps memory owned elsewhere (a mapped file, a message); `keep_alive` is released with the buffer.
  static std::shared_ptr<Buffer> Wrap(void* data, size_t bytes, std::shared_ptr<const void> keep_alive);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  Buffer(void* data, size_t size, bool owned, std::shared_ptr<const void> keep_alive);
  void* data_;
  size_t size_;
  bool owned_;
  std::shared_ptr<const void> keep_alive_;
};

// Owning tensor: a view plus the buffer it lies in. Copies share the buffer.
struct Tensor {
  TensorRef ref;
  std::shared_ptr<Buffer> buffer;

  static Tensor Allocate(DType dtype, const Dims& dims);  // contiguous, uninitialised
  static Tensor Zeros(DType dtype, const Dims& dims);
  template <class T>
  static Tensor Of(DType dtype, const Dims& dims, std::span<const T> values);

  DType dtype() const { return ref.dtype; }
  const Dims& dims() const { return ref.dims; }
  template <class T>
  std::span<T> values() const {
    return {ref.as<T>(), static_cast<size_t>(ref.elements())};
  }  // contiguous only
};

// Copies elements of `from` to `to` (same dtype and dims, any strides, no overlap).
void CopyElements(const TensorRef& from, const TensorRef& to);
// A contiguous owning copy.
Tensor MakeContiguous(const TensorRef& from);

template <class T>
Tensor Tensor::Of(DType dtype, const Dims& dims, std::span<const T> values) {
  Tensor tensor = Allocate(dtype, dims);
  std::copy(values.begin(), values.end(), tensor.ref.as<T>());
  return tensor;
}

}  // namespace kiln

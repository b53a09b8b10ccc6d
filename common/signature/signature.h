// How one call of a segment looks: dtype, dims, strides, alignment and view flag of every run-time input, and the
// parameters.
//
// Signatures are flat words, hashed for speed and always compared in full (docs/design.md). Strides of dims of size 1
// are written as 0, so that they never tell two calls apart.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/segment/segment.h"
#include "common/shape/tensor_desc.h"
#include "common/tensor/tensor.h"

namespace kiln {

// Words per input: one header (dtype, rank, layout class, alignment class, view flag), `rank` dims, and `rank` strides
// when the layout is not contiguous. Parameters follow the inputs. Value type.
struct Signature {
  std::vector<uint64_t> words;
  uint64_t hash = 0;
  bool operator==(const Signature& other) const { return hash == other.hash && words == other.words; }
};

// Reuses `signature`'s storage; no heap allocation once it is large enough. The view flag is set for every layout that
// is not contiguous.
void BuildSignature(std::span<const TensorRef> inputs, std::span<const int64_t> parameters, Signature* signature);

// One input as a signature describes it.
struct SignatureInput {
  DType dtype;
  Dims dims;
  Dims strides;
  LayoutClass layout;
  AlignmentClass alignment;
  bool operator==(const SignatureInput&) const = default;
};
// The inverse, for messages, explain and replay. Rejects malformed words.
struct SignatureParts {
  std::vector<SignatureInput> inputs;
  std::vector<int64_t> parameters;
};
Result<SignatureParts> ParseSignature(std::span<const uint64_t> words, int inputs);
std::string ToString(const SignatureParts& parts);  // "f32[2, 64] f32[64]:strides[1, 64]"

struct SignatureHash {
  size_t operator()(const Signature& signature) const noexcept { return signature.hash; }
};

LayoutClass LayoutOf(const TensorRef& tensor);
AlignmentClass AlignmentOf(const TensorRef& tensor);

}  // namespace kiln

#include "common/signature/signature.h"

#include <fmt/format.h>

namespace kiln {
namespace {

// Header word: dtype (bits 0-7), rank (8-15), layout (16-23), alignment (24-31), view flag (32).
constexpr uint64_t kViewBit = uint64_t{1} << 32;

uint64_t HeaderOf(const TensorRef& tensor, LayoutClass layout) {
  return static_cast<uint64_t>(tensor.dtype) | static_cast<uint64_t>(tensor.rank()) << 8 |
         static_cast<uint64_t>(layout) << 16 | static_cast<uint64_t>(AlignmentOf(tensor)) << 24 |
         (layout == LayoutClass::kContiguous ? 0 : kViewBit);
}

}  // namespace

LayoutClass LayoutOf(const TensorRef& tensor) {
  int64_t expected = 1;
  bool contiguous = true, broadcast = false, empty = false;
  for (int i = tensor.rank(); i-- > 0;) {
    const int64_t dim = tensor.dims[i];
    empty |= dim == 0;
    if (dim == 1) continue;
    contiguous &= tensor.strides[i] == expected;
    broadcast |= tensor.strides[i] == 0;
    expected *= dim;
  }
  if (contiguous || empty) return LayoutClass::kContiguous;
  return broadcast ? LayoutClass::kStrideZero : LayoutClass::kStrided;
}

AlignmentClass AlignmentOf(const TensorRef& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.data) % 64 == 0 ? AlignmentClass::k64 : AlignmentClass::kElement;
}

void BuildSignature(std::span<const TensorRef> inputs, std::span<const int64_t> parameters, Signature* signature) {
  size_t limit = parameters.size();
  for (const TensorRef& input : inputs) limit += 1 + 2 * static_cast<size_t>(input.rank());
  std::vector<uint64_t>& words = signature->words;
  words.resize(limit);
  uint64_t* out = words.data();
  for (const TensorRef& input : inputs) {
    const LayoutClass layout = LayoutOf(input);
    const int rank = input.rank();
    *out++ = HeaderOf(input, layout);
    for (int i = 0; i < rank; ++i) *out++ = static_cast<uint64_t>(input.dims[i]);
    if (layout == LayoutClass::kContiguous) continue;
    for (int i = 0; i < rank; ++i) *out++ = input.dims[i] == 1 ? 0 : static_cast<uint64_t>(input.strides[i]);
  }
  for (int64_t parameter : parameters) *out++ = static_cast<uint64_t>(parameter);
  words.resize(static_cast<size_t>(out - words.data()));
  signature->hash = FastHash({reinterpret_cast<const uint8_t*>(words.data()), words.size() * sizeof(uint64_t)});
}

Result<SignatureParts> ParseSignature(std::span<const uint64_t> words, int inputs) {
  SignatureParts parts;
  size_t at = 0;
  for (int i = 0; i < inputs; ++i) {
    if (at >= words.size()) return Fail(ErrorCode::kMalformed, fmt::format("signature ends before input {}", i));
    const uint64_t header = words[at++];
    const auto dtype = DTypeFromNumber(static_cast<int>(header & 0xff));
    const uint64_t rank = header >> 8 & 0xff, layout = header >> 16 & 0xff, alignment = header >> 24 & 0xff;
    const bool contiguous = layout == static_cast<uint64_t>(LayoutClass::kContiguous);
    if (!dtype || rank > limits::kRankMax || layout > static_cast<uint64_t>(LayoutClass::kBlocked) ||
        alignment > static_cast<uint64_t>(AlignmentClass::k64) || header >> 32 != (contiguous ? 0u : 1u))
      return Fail(ErrorCode::kMalformed,
                  fmt::format("input {} of the signature has header {:#x}, which means nothing", i, header));
    if (words.size() - at < rank * (contiguous ? 1 : 2))
      return Fail(ErrorCode::kMalformed, fmt::format("signature ends within input {}", i));
    SignatureInput input{.dtype = *dtype,
                         .layout = static_cast<LayoutClass>(layout),
                         .alignment = static_cast<AlignmentClass>(alignment)};
    for (uint64_t d = 0; d < rank; ++d) {
      input.dims.push_back(static_cast<int64_t>(words[at++]));
      if (input.dims.back() < 0)
        return Fail(ErrorCode::kMalformed, fmt::format("dim {} of input {} is negative", d, i));
    }
    if (const auto elements = CheckedElements(input.dims, *dtype); !elements)
      return FailIn(fmt::format("input {} of the signature", i), elements.error());
    if (contiguous) {
      input.strides = ContiguousStrides(input.dims);
    } else {
      for (uint64_t d = 0; d < rank; ++d) input.strides.push_back(static_cast<int64_t>(words[at++]));
    }
    parts.inputs.push_back(input);
  }
  for (; at < words.size(); ++at) parts.parameters.push_back(static_cast<int64_t>(words[at]));
  return parts;
}

std::string ToString(const SignatureParts& parts) {
  std::string text;
  for (const SignatureInput& input : parts.inputs) {
    text += fmt::format("{}{}{}", text.empty() ? "" : " ", DTypeName(input.dtype), input.dims.ToString());
    if (input.layout != LayoutClass::kContiguous) text += ":strides" + input.strides.ToString();
    if (input.alignment != AlignmentClass::k64) text += ":unaligned";
  }
  if (!parts.parameters.empty()) text += fmt::format(" ({})", fmt::join(parts.parameters, ", "));
  return text;
}

}  // namespace kiln

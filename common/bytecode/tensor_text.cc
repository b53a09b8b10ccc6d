#include "common/bytecode/tensor_text.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "common/base/limits.h"

namespace kiln {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

template <class T>
constexpr bool kIsFloat = std::is_floating_point_v<T> || std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;

template <class T>
std::string HexPattern(T bits) {
  std::string text;
  for (int shift = static_cast<int>(sizeof(T) * 8) - 4; shift >= 0; shift -= 4)
    text += kHexDigits[(bits >> shift) & 15];
  return text;
}

// The 16-bit types are written as the float they equal; it converts back without rounding.
template <class T>
std::string FloatTextOf(T value) {
  using Wide = std::conditional_t<sizeof(T) == 2, float, T>;
  const Wide wide = static_cast<Wide>(value);
  if (std::isnan(wide)) {
    const auto bits = std::bit_cast<BitsOf<T>>(value);
    const auto plain = std::bit_cast<BitsOf<T>>(static_cast<T>(std::numeric_limits<Wide>::quiet_NaN()));
    return bits == plain ? "nan" : "nan(0x" + HexPattern(bits) + ")";
  }
  if (std::isinf(wide)) return wide < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, wide);
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::unexpected<Error> BadElement(DType dtype, std::string_view text) {
  return Fail(ErrorCode::kMalformed,
              "\"" + std::string(text.substr(0, 64)) + "\" is no value of " + std::string(DTypeName(dtype)));
}

template <class T>
bool ParseFloatTo(std::string_view text, T& value) {
  using Wide = std::conditional_t<sizeof(T) == 2, float, T>;
  if (text.starts_with("nan(0x") && text.ends_with(")")) {
    text = text.substr(6, text.size() - 7);
    BitsOf<T> bits = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bits, 16);
    if (error != std::errc() || end != text.data() + text.size()) return false;
    value = std::bit_cast<T>(bits);
    return std::isnan(static_cast<Wide>(value));
  }
  Wide wide = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), wide);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument) return false;
  if (error == std::errc::result_out_of_range) return false;
  value = static_cast<T>(wide);
  return true;
}

template <class T>
bool ParseTo(std::string_view text, T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    value = text == "true" || text == "1";
    return value || text == "false" || text == "0";
  } else if constexpr (kIsFloat<T>) {
    return ParseFloatTo(text, value);
  } else {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
  }
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

Status ParseHex(TextReader& reader, Tensor& tensor) {
  const size_t start = reader.offset();
  ASSIGN_OR_RETURN(const std::string text, reader.Quoted());
  const size_t bytes = static_cast<size_t>(tensor.ref.bytes());
  if (text.size() != 2 * bytes) {
    return reader.WrongAt(start, std::to_string(text.size()) + " hex digits for " + std::to_string(bytes) + " bytes");
  }
  uint8_t* out = tensor.ref.as<uint8_t>();
  for (size_t i = 0; i < bytes; ++i) {
    const int high = HexValue(text[2 * i]), low = HexValue(text[2 * i + 1]);
    if (high < 0 || low < 0) return reader.WrongAt(start, "a character that is no lower-case hex digit");
    if (tensor.dtype() == DType::kBool && (high != 0 || low > 1)) return reader.WrongAt(start, "a bool is 00 or 01");
    out[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return {};
}

Status ParseNextElement(TextReader& reader, DType dtype, void* element) {
  reader.Peek();
  const size_t start = reader.offset();
  ASSIGN_OR_RETURN(const std::string_view text, reader.Scalar());
  if (auto status = ParseElement(dtype, text, element); !status) return reader.WrongAt(start, status.error().message);
  return {};
}

}  // namespace

std::string FloatText(double value) {
  return FloatTextOf(value);
}

Result<double> ParseFloat(std::string_view text) {
  double value = 0;
  if (!ParseFloatTo(text, value)) return BadElement(DType::kF64, text);
  return value;
}

std::string ElementText(DType dtype, const void* element) {
  return DispatchDType(dtype, [&]<class T>() -> std::string {
    T value;
    std::memcpy(&value, element, sizeof value);
    if constexpr (std::is_same_v<T, bool>) {
      return value ? "true" : "false";
    } else if constexpr (kIsFloat<T>) {
      return FloatTextOf(value);
    } else {
      return std::to_string(value);
    }
  });
}

Status ParseElement(DType dtype, std::string_view text, void* element) {
  return DispatchDType(dtype, [&]<class T>() -> Status {
    T value{};
    if (!ParseTo(text, value)) return BadElement(dtype, text);
    std::memcpy(element, &value, sizeof value);
    return {};
  });
}

std::string TensorDataText(const Tensor& tensor, size_t list_max) {
  const size_t width = static_cast<size_t>(DTypeBytes(tensor.dtype()));
  const size_t count = static_cast<size_t>(tensor.ref.elements());
  const uint8_t* data = tensor.ref.as<const uint8_t>();
  if (count <= list_max) {
    std::string text = "[";
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) text += ", ";
      text += ElementText(tensor.dtype(), data + i * width);
    }
    return text + "]";
  }
  // Equal to itself moved by one element: all are equal.
  if (count > 0 && std::memcmp(data, data + width, (count - 1) * width) == 0) {
    return "splat " + ElementText(tensor.dtype(), data);
  }
  std::string text = "hex \"";
  text.reserve(text.size() + 2 * count * width + 1);
  for (size_t i = 0; i < count * width; ++i) {
    text += kHexDigits[data[i] >> 4];
    text += kHexDigits[data[i] & 15];
  }
  return text + "\"";
}

Result<Tensor> ParseTensorData(TextReader& reader, DType dtype, const Dims& dims) {
  const size_t width = static_cast<size_t>(DTypeBytes(dtype));
  const size_t count = static_cast<size_t>(NumElements(dims));
  if (reader.Take("splat")) {
    if (count * width > limits::kSplatBytesMax) return reader.Wrong("a splat passes 1 GiB");
    Tensor tensor = Tensor::Allocate(dtype, dims);
    uint64_t element = 0;
    RETURN_IF_ERROR(ParseNextElement(reader, dtype, &element));
    for (size_t i = 0; i < count; ++i) std::memcpy(tensor.ref.as<uint8_t>() + i * width, &element, width);
    return tensor;
  }
  if (reader.Take("hex")) {
    const size_t start = reader.offset();
    ASSIGN_OR_RETURN(const std::string probe, reader.Quoted());
    if (probe.size() != 2 * count * width) {
      return reader.WrongAt(
          start, std::to_string(probe.size()) + " hex digits for " + std::to_string(count * width) + " bytes");
    }
    reader.Rewind(start);
    Tensor tensor = Tensor::Allocate(dtype, dims);
    RETURN_IF_ERROR(ParseHex(reader, tensor));
    return tensor;
  }
  const size_t start = reader.offset();
  RETURN_IF_ERROR(reader.Expect("["));
  std::vector<uint8_t> bytes;
  while (!reader.Take("]")) {
    if (!bytes.empty()) RETURN_IF_ERROR(reader.Expect(","));
    uint64_t element = 0;
    RETURN_IF_ERROR(ParseNextElement(reader, dtype, &element));
    const auto* first = reinterpret_cast<const uint8_t*>(&element);
    bytes.insert(bytes.end(), first, first + width);
    if (bytes.size() > count * width) break;
  }
  if (bytes.size() != count * width) {
    return reader.WrongAt(start,
                          "the list does not have the " + std::to_string(count) + " elements of " + dims.ToString());
  }
  Tensor tensor = Tensor::Allocate(dtype, dims);
  if (!bytes.empty()) std::memcpy(tensor.ref.data, bytes.data(), bytes.size());
  return tensor;
}

Status ParseStaticShape(TextReader& reader, DType& dtype, Dims& dims) {
  reader.Peek();
  const size_t start = reader.offset();
  ASSIGN_OR_RETURN(const std::string name, reader.Name());
  const auto found = DTypeFromName(name);
  if (!found) return reader.WrongAt(start, "\"" + name + "\" is no dtype");
  dtype = *found;
  dims = Dims();
  RETURN_IF_ERROR(reader.Expect("["));
  while (!reader.Take("]")) {
    if (!dims.empty()) RETURN_IF_ERROR(reader.Expect(","));
    if (dims.rank() == limits::kRankMax) return reader.Wrong("rank is at most " + std::to_string(limits::kRankMax));
    ASSIGN_OR_RETURN(const int64_t dim, reader.Int());
    dims.push_back(dim);
  }
  if (auto elements = CheckedElements(dims, dtype); !elements) return reader.WrongAt(start, elements.error().message);
  return {};
}

}  // namespace kiln

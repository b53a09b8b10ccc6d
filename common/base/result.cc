#include "common/base/result.h"

#include <array>

namespace kiln {
namespace {

// "InvalidArgument" -> "invalid_argument"
constexpr size_t kNameBytesMax = 32;
struct SnakeName {
  std::array<char, kNameBytesMax> text{};
  size_t size = 0;
};

constexpr SnakeName ToSnake(std::string_view camel) {
  SnakeName name;
  for (size_t i = 0; i < camel.size(); ++i) {
    const bool upper = camel[i] >= 'A' && camel[i] <= 'Z';
    if (upper && i > 0) name.text[name.size++] = '_';
    name.text[name.size++] = upper ? static_cast<char>(camel[i] - 'A' + 'a') : camel[i];
  }
  return name;
}

#define KILN_ERROR(value, name, doc, exit_code) constexpr SnakeName kName##name = ToSnake(#name);
#include "common/base/error_codes.def"
#undef KILN_ERROR

}  // namespace

std::string_view ErrorCodeName(ErrorCode code) {
  switch (code) {
#define KILN_ERROR(value, name, doc, exit_code) \
  case ErrorCode::k##name:                      \
    return {kName##name.text.data(), kName##name.size};
#include "common/base/error_codes.def"
#undef KILN_ERROR
  }
  return "unknown";
}

int ErrorExitCode(ErrorCode code) {
  switch (code) {
#define KILN_ERROR(value, name, doc, exit_code) \
  case ErrorCode::k##name:                      \
    return exit_code;
#include "common/base/error_codes.def"
#undef KILN_ERROR
  }
  return 4;
}

ErrorCode ErrorCodeFromWire(uint8_t value) {
  switch (static_cast<ErrorCode>(value)) {
#define KILN_ERROR(value, name, doc, exit_code) \
  case ErrorCode::k##name:                      \
    return ErrorCode::k##name;
#include "common/base/error_codes.def"
#undef KILN_ERROR
  }
  return ErrorCode::kInternal;
}

std::string ToString(const Error& error) {
  return std::string(ErrorCodeName(error.code)) + ": " + error.message;
}

std::unexpected<Error> FailIn(std::string_view context, const Error& error) {
  return Fail(error.code, std::string(context) + ": " + error.message, error.where);
}

}  // namespace kiln

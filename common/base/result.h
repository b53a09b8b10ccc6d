// Result<T>: the return type of every function that can fail on input.
//
// `Fail(code, message)` makes the error side; `RETURN_IF_ERROR` and `ASSIGN_OR_RETURN` pass it on.
// Exceptions of third-party code are caught at its edge and become an Error there.
#pragma once

#include <cstdint>
#include <expected>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

namespace kiln {

enum class ErrorCode : uint8_t {
#define KILN_ERROR(value, name, doc, exit_code) k##name = value,
#include "common/base/error_codes.def"
#undef KILN_ERROR
};

// Stable lower-case name of a code, as used in messages, metrics and docs ("invalid_argument").
std::string_view ErrorCodeName(ErrorCode code);
// Process exit status the CLI uses for a code; 2 for everything that is the fault of the input.
int ErrorExitCode(ErrorCode code);
// Inverse of the enum's numeric value; unknown values (a newer peer's) become kInternal.
ErrorCode ErrorCodeFromWire(uint8_t value);

// What went wrong. `message` names the thing, the value, the limit and what to do next.
struct Error {
  ErrorCode code;
  std::string message;
  std::source_location where;
};

// "invalid_argument: ..." as a person reads it; `where` is left out.
std::string ToString(const Error& error);

template <class T>
class [[nodiscard]] Result : public std::expected<T, Error> {
 public:
  using value_type = T;
  using std::expected<T, Error>::expected;
};
using Status = Result<void>;

[[nodiscard]] inline std::unexpected<Error> Fail(ErrorCode code, std::string message,
                                                 std::source_location where = std::source_location::current()) {
  return std::unexpected<Error>(Error{code, std::move(message), where});
}

// Puts "context: " before an error's message and keeps its code and origin.
[[nodiscard]] std::unexpected<Error> FailIn(std::string_view context, const Error& error);

}  // namespace kiln

#define KILN_CONCAT_INNER(a, b) a##b
#define KILN_CONCAT(a, b) KILN_CONCAT_INNER(a, b)

#define RETURN_IF_ERROR(expression)                                             \
  do {                                                                          \
    if (auto kiln_status = (expression); !kiln_status.has_value()) [[unlikely]] \
      return std::unexpected(std::move(kiln_status).error());                   \
  } while (false)

#define ASSIGN_OR_RETURN(declaration, expression) \
  ASSIGN_OR_RETURN_IMPL(KILN_CONCAT(kiln_result_, __LINE__), declaration, expression)
#define ASSIGN_OR_RETURN_IMPL(result, declaration, expression) \
  auto result = (expression);                                  \
  if (!result.has_value()) [[unlikely]]                        \
    return std::unexpected(std::move(result).error());         \
  declaration = *std::move(result)

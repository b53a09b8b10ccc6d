// What the command tells people: the one way to standard output and standard error. Names come from models, paths and
// peers, so every text among the arguments is made harmless (common/base/printable.h).
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>

#include "common/base/printable.h"

namespace kiln::cli {

template <class T>
auto Harmless(const T& argument) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>)
    return Printable(std::string_view(argument));
  else
    return argument;
}

template <class... T>
void SayTo(std::FILE* out, fmt::format_string<const T&...> format, const T&... arguments) {
  fmt::vprint(out, format, fmt::make_format_args(Harmless(arguments)...));
}
template <class... T>
void Say(fmt::format_string<const T&...> format, const T&... arguments) {
  SayTo<T...>(stdout, format, arguments...);
}
// Text that comes in lines.
inline void SayLines(std::string_view text, std::FILE* out = stdout) {
  fmt::print(out, "{}", PrintableLines(text));
}

}  // namespace kiln::cli

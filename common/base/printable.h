// Text from models, paths, peers and libraries, made harmless for whoever reads it on a terminal or in a log.
#pragma once

#include <string>
#include <string_view>

namespace kiln {

// Control characters (those below the space, DEL, U+0080..U+009F) and what reverses or breaks lines (U+2028..U+202E,
// U+2066..U+2069) become escapes as in C (\n, \x1b, \u202e), bytes that are no UTF-8 become \xHH. Everything else
// stays, a backslash too.
std::string Printable(std::string_view text);
// The same of text in lines: '\n' stays.
std::string PrintableLines(std::string_view text);

}  // namespace kiln

#include "common/base/printable.h"

#include <cstdint>

namespace kiln {
namespace {

constexpr char kHex[] = "0123456789abcdef";

struct CodePoint {
  uint32_t value = 0;
  size_t bytes = 0;  // 0: no UTF-8
};

bool IsContinuation(char c) {
  return (static_cast<uint8_t>(c) & 0xc0) == 0x80;
}

// The first character; overlong forms, surrogates and numbers past U+10FFFF are none.
CodePoint Decode(std::string_view text) {
  const uint8_t first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return {first, 1};
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return {};
  uint32_t value = first & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if (!IsContinuation(text[i])) return {};
    value = value << 6 | (static_cast<uint8_t>(text[i]) & 0x3f);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (value < kLeast[bytes] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) return {};
  return {value, bytes};
}

bool IsHarmless(uint32_t c) {
  return c >= 0x20 && (c < 0x7f || c > 0x9f) && (c < 0x2028 || c > 0x202e) && (c < 0x2066 || c > 0x2069);
}

void AppendHex(uint32_t value, int digits, std::string& out) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kHex[value >> shift & 0xf];
}

void AppendEscape(uint32_t c, std::string& out) {
  if (c == '\n' || c == '\r' || c == '\t') {
    out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
  } else if (c < 0x80) {
    AppendHex(c, 2, out += "\\x");
  } else {
    AppendHex(c, 4, out += "\\u");
  }
}

std::string Escaped(std::string_view text, bool keep_lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint c = Decode(text);
    if (c.bytes == 0) {
      AppendHex(static_cast<uint8_t>(text[0]), 2, out += "\\x");
    } else if (IsHarmless(c.value) || (keep_lines && c.value == '\n')) {
      out.append(text.substr(0, c.bytes));
    } else {
      AppendEscape(c.value, out);
    }
    text.remove_prefix(c.bytes == 0 ? 1 : c.bytes);
  }
  return out;
}

}  // namespace

std::string Printable(std::string_view text) {
  return Escaped(text, false);
}

std::string PrintableLines(std::string_view text) {
  return Escaped(text, true);
}

}  // namespace kiln

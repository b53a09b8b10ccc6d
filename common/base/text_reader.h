// Tokens of the text forms (programs, tensors, test files). White space and `//` comments separate tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace kiln {

// A cursor over text that outlives it. Every failure is Malformed and names line and column. Not thread-safe.
class TextReader {
 public:
  explicit TextReader(std::string_view text) : text_(text) {}

  bool AtEnd();
  // Consumes `token` if it is next; a word only as a whole word.
  bool Take(std::string_view token);
  Status Expect(std::string_view token);
  char Peek();                   // next character of a token, '\0' at the end
  Result<std::string> Name();    // [A-Za-z_][A-Za-z0-9_.]*
  Result<std::string> Quoted();  // "bytes with \" \\ and \xHH"
  Result<std::string> NameOrQuoted();
  Result<int64_t> Int();
  // The characters of a number, bool or nan(0x…): letters, digits and . + - _ ( ).
  Result<std::string_view> Scalar();
  // Text up to the first of `stops` that is outside quotes and parentheses; not consumed. A newline is no stop unless
  // listed.
  Result<std::string_view> Until(std::string_view stops);
  // The cursor, to come back to for a message.
  size_t offset() const { return at_; }
  void Rewind(size_t offset) { at_ = offset; }
  std::unexpected<Error> Wrong(std::string_view what) const { return WrongAt(at_, what); }
  std::unexpected<Error> WrongAt(size_t offset, std::string_view what) const;

 private:
  void Skip();

  std::string_view text_;
  size_t at_ = 0;
};

bool IsPlainName(std::string_view name);
std::string QuotedText(std::string_view bytes);
std::string NameOrQuotedText(std::string_view name);

}  // namespace kiln

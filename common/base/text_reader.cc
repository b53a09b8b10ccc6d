#include "common/base/text_reader.h"

#include <algorithm>
#include <charconv>

namespace kiln {
namespace {

bool IsLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}
bool IsNamePart(char c) {
  return IsLetter(c) || IsDigit(c) || c == '.';
}
bool IsSpace(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

}  // namespace

void TextReader::Skip() {
  while (at_ < text_.size()) {
    if (IsSpace(text_[at_])) {
      ++at_;
    } else if (text_.substr(at_, 2) == "//") {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else {
      return;
    }
  }
}

bool TextReader::AtEnd() {
  Skip();
  return at_ == text_.size();
}

char TextReader::Peek() {
  Skip();
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool TextReader::Take(std::string_view token) {
  Skip();
  if (text_.substr(at_, token.size()) != token) return false;
  const size_t end = at_ + token.size();
  if (IsNamePart(token.back()) && end < text_.size() && IsNamePart(text_[end])) return false;
  at_ = end;
  return true;
}

Status TextReader::Expect(std::string_view token) {
  if (Take(token)) return {};
  return Wrong("\"" + std::string(token) + "\" is expected");
}

Result<std::string> TextReader::Name() {
  if (!IsLetter(Peek())) return Wrong("a name is expected");
  const size_t start = at_;
  while (at_ < text_.size() && IsNamePart(text_[at_])) ++at_;
  return std::string(text_.substr(start, at_ - start));
}

Result<std::string> TextReader::Quoted() {
  if (Peek() != '"') return Wrong("a quoted text is expected");
  const size_t start = at_++;
  std::string bytes;
  while (at_ < text_.size() && text_[at_] != '"') {
    if (text_[at_] != '\\') {
      bytes += text_[at_++];
      continue;
    }
    if (++at_ == text_.size()) break;
    const char escaped = text_[at_++];
    if (escaped != 'x') {
      if (escaped != '"' && escaped != '\\') return WrongAt(at_ - 2, "only \\\" \\\\ and \\xHH are escapes");
      bytes += escaped;
      continue;
    }
    unsigned byte = 0;
    const char* digits = text_.data() + at_;
    if (at_ + 2 > text_.size()) return Wrong("\\x needs two hex digits");
    const auto [end, error] = std::from_chars(digits, digits + 2, byte, 16);
    if (error != std::errc() || end != digits + 2) return Wrong("\\x needs two hex digits");
    bytes += static_cast<char>(byte);
    at_ += 2;
  }
  if (at_ == text_.size()) return WrongAt(start, "the closing quote is missing");
  ++at_;
  return bytes;
}

Result<std::string> TextReader::NameOrQuoted() {
  return Peek() == '"' ? Quoted() : Name();
}

Result<int64_t> TextReader::Int() {
  Skip();
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
  if (error == std::errc::result_out_of_range) return Wrong("the number does not fit 64 bits");
  if (error != std::errc()) return Wrong("an integer is expected");
  at_ = static_cast<size_t>(end - text_.data());
  return value;
}

Result<std::string_view> TextReader::Scalar() {
  Skip();
  const size_t start = at_;
  int open = 0;
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '(') ++open;
    if (c == ')' && --open < 0) break;
    if (!IsNamePart(c) && c != '+' && c != '-' && c != '(' && c != ')') break;
    ++at_;
  }
  if (at_ == start) return Wrong("a number is expected");
  return text_.substr(start, at_ - start);
}

Result<std::string_view> TextReader::Until(std::string_view stops) {
  Skip();
  const size_t start = at_;
  int open = 0;
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (open == 0 && (stops.contains(c) || text_.substr(at_, 2) == "//")) return text_.substr(start, at_ - start);
    if (c == '(') ++open;
    if (c == ')') --open;
    if (c == '"') {
      for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) at_ += text_[at_] == '\\';
    }
    ++at_;
  }
  at_ = std::min(at_, text_.size());
  return WrongAt(start, "the text ends before one of \"" + std::string(stops) + "\"");
}

std::unexpected<Error> TextReader::WrongAt(size_t offset, std::string_view what) const {
  const std::string_view before = text_.substr(0, offset);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t start = before.rfind('\n');
  const size_t column = offset - (start == std::string_view::npos ? 0 : start + 1) + 1;
  return Fail(ErrorCode::kMalformed,
              "line " + std::to_string(line) + ", column " + std::to_string(column) + ": " + std::string(what));
}

bool IsPlainName(std::string_view name) {
  return !name.empty() && IsLetter(name[0]) && std::all_of(name.begin(), name.end(), IsNamePart);
}

std::string QuotedText(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "\"";
  for (unsigned char c : bytes) {
    if (c == '"' || c == '\\') {
      text += '\\';
      text += static_cast<char>(c);
    } else if (c < 0x20 || c >= 0x7f) {
      text += "\\x";
      text += kDigits[c >> 4];
      text += kDigits[c & 15];
    } else {
      text += static_cast<char>(c);
    }
  }
  return text + "\"";
}

std::string NameOrQuotedText(std::string_view name) {
  return IsPlainName(name) ? std::string(name) : QuotedText(name);
}

}  // namespace kiln

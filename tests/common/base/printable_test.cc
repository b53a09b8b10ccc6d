#include "common/base/printable.h"

#include <gtest/gtest.h>

#include <string>

namespace kiln {
namespace {

TEST(Printable, WhatATerminalObeysIsEscapedAndTextStays) {
  struct Case {
    std::string_view text, printable;
  };
  for (const Case& c : {
           Case{"conv1/BatchNorm \"ä\" 層 \U0001F600 \\n", "conv1/BatchNorm \"ä\" 層 \U0001F600 \\n"},
           Case{"\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"},
           Case{"a\r\n\tb\x7f", "a\\r\\n\\tb\\x7f"},
           Case{std::string_view("\0end", 4), "\\x00end"},
           Case{"\xc2\x9b"
                "31m \xc2\x85 \xc2\xa0",
                "\\u009b31m \\u0085 \xc2\xa0"},
           Case{"\x9b"
                "31m",
                "\\x9b31m"},
           Case{"\u202eevil\u2066\u2028", "\\u202eevil\\u2066\\u2028"},
           // No UTF-8: overlong, a surrogate, cut off, past the last character.
           Case{"\xc0\x8a \xed\xa0\x80 \xe2\x82 \xf5\x80\x80\x80",
                "\\xc0\\x8a \\xed\\xa0\\x80 \\xe2\\x82 \\xf5\\x80\\x80\\x80"},
           Case{"\xe2\x80", "\\xe2\\x80"},
       }) {
    EXPECT_EQ(Printable(c.text), c.printable);
  }
  EXPECT_EQ(PrintableLines("one\ntwo\x1b\r\n"), "one\ntwo\\x1b\\r\n");
}

TEST(Printable, NothingOfAnyBytesIsAControl) {
  for (int first = 0; first < 256; ++first)
    for (int second = 0; second < 256; ++second) {
      const std::string text = Printable(std::string{static_cast<char>(first), static_cast<char>(second)});
      for (size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        EXPECT_TRUE(byte >= 0x20 && byte != 0x7f) << first << " " << second;
        EXPECT_FALSE(byte == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0) << first << " " << second;
      }
    }
}

}  // namespace
}  // namespace kiln

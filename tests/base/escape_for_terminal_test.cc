#include "base/escape_for_terminal.h"

#include <string>

#include "gtest/gtest.h"

namespace annulus {
namespace {

TEST(PrintableTest, WhatAPersonCanReadStays) {
  const std::string text = "inputs[1].lse: it's \"NaN\\\" … ü 中 😀";
  EXPECT_EQ(EscapeForTerminal(text), text);
}

TEST(PrintableTest, LinesAreJoined) {
  EXPECT_EQ(EscapeForTerminal("no JSON: \r\n\n  ^ here\tor there\n"), "no JSON:   ^ here or there");
}

TEST(PrintableTest, WhatMovesATerminalIsWrittenOut) {
  using namespace std::string_literals;
  EXPECT_EQ(EscapeForTerminal("a\0b\x1b[2J\x7f\rc"s), "a\\x00b\\x1b[2J\\x7f\\x0dc");
  EXPECT_EQ(EscapeForTerminal("\xc2\x9b[2J"), "\\xc2\\x9b[2J");  // CSI of C1.
  EXPECT_EQ(EscapeForTerminal("\xe2\x80\xae"
                              "x"),
            "\\xe2\\x80\\xaex");  // Right to left.
}

TEST(PrintableTest, BytesThatAreNoUtf8AreWrittenOut) {
  EXPECT_EQ(EscapeForTerminal("\xff\x80"
                              "a\xc3"),
            "\\xff\\x80a\\xc3");
  // Overlong encoding.
  EXPECT_EQ(EscapeForTerminal("\xc0\x9b\xe0\x80\x9b"), "\\xc0\\x9b\\xe0\\x80\\x9b");
  EXPECT_EQ(EscapeForTerminal("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // A surrogate.
  EXPECT_EQ(EscapeForTerminal("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(EscapeForTerminal(""), "");
}

}  // namespace
}  // namespace annulus

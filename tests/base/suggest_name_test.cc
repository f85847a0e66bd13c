#include "base/suggest_name.h"

#include <string>

#include "gtest/gtest.h"

namespace annulus {
namespace {

TEST(NearestTest, ForgivesALetterInThree) {
  const std::vector<std::string> names = {"causal", "window", "bit_mask", "ranges"};
  EXPECT_EQ(Nearest("casual", names), "causal");
  EXPECT_EQ(Nearest("cuasal", names), "causal");
  EXPECT_EQ(Nearest("CAUSAL", names), "causal");
  EXPECT_EQ(Nearest("windw", names), "window");
  EXPECT_EQ(Nearest("windoww", names), "window");
  EXPECT_EQ(Nearest("bitmask", names), "bit_mask");
  EXPECT_EQ(Nearest("wadnow", names), "window");
  EXPECT_EQ(Nearest("wadnaw", names), "");
  EXPECT_EQ(Nearest("prefix", names), "");
  EXPECT_EQ(Nearest("", names), "");
  EXPECT_EQ(Nearest("x", {"y", "x"}), "x");
}

TEST(NearestTest, TakesTheFirstOfEquals) { EXPECT_EQ(Nearest("abcx", {"abcy", "abcz"}), "abcy"); }

TEST(NearestTest, LooksNotAtWhatIsLong) {
  const std::string letters(65, 'a');
  EXPECT_EQ(Nearest(letters, {letters}), "");
  EXPECT_EQ(Nearest(letters.substr(1), {letters}), "");
  EXPECT_EQ(Nearest(letters.substr(1), {letters.substr(2)}), letters.substr(2));
}

}  // namespace
}  // namespace annulus

#include "base/suggest_name.h"

#include <string>

#include "gtest/gtest.h"

namespace annulus {
namespace {

TEST(NearestTest, ForgivesALetterInThree) {
  const std::vector<std::string> names = {"causal", "window", "bit_mask", "ranges"};
  EXPECT_EQ(SuggestName("casual", names), "causal");
  EXPECT_EQ(SuggestName("cuasal", names), "causal");
  EXPECT_EQ(SuggestName("CAUSAL", names), "causal");
  EXPECT_EQ(SuggestName("windw", names), "window");
  EXPECT_EQ(SuggestName("windoww", names), "window");
  EXPECT_EQ(SuggestName("bitmask", names), "bit_mask");
  EXPECT_EQ(SuggestName("wadnow", names), "window");
  EXPECT_EQ(SuggestName("wadnaw", names), "");
  EXPECT_EQ(SuggestName("prefix", names), "");
  EXPECT_EQ(SuggestName("", names), "");
  EXPECT_EQ(SuggestName("x", {"y", "x"}), "x");
}

TEST(NearestTest, TakesTheFirstOfEquals) {
  EXPECT_EQ(SuggestName("abcx", {"abcy", "abcz"}), "abcy");
}

TEST(NearestTest, LooksNotAtWhatIsLong) {
  const std::string letters(65, 'a');
  EXPECT_EQ(SuggestName(letters, {letters}), "");
  EXPECT_EQ(SuggestName(letters.substr(1), {letters}), "");
  EXPECT_EQ(SuggestName(letters.substr(1), {letters.substr(2)}), letters.substr(2));
}

}  // namespace
}  // namespace annulus

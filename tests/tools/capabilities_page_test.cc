#include "tools/capabilities/capabilities_page.h"

#include <fstream>
#include <sstream>

#include "gtest/gtest.h"

namespace annulus {
namespace {

TEST(CapabilitiesPageTest, TheDocsSayWhatTheTableSays) {
  std::ifstream file("docs/reference/capabilities.md");
  ASSERT_TRUE(file.good());
  std::ostringstream content;
  content << file.rdbuf();
  EXPECT_EQ(CapabilitiesPage(), content.str())
      << "make it again: bazel run //tools/capabilities > docs/reference/capabilities.md";
}

}  // namespace
}  // namespace annulus

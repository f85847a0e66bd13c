#include "tests/gpu/figure_file.h"

#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace annulus {
namespace {

bench::Entry Named(const std::string& name) {
  bench::Entry entry;
  entry.name = name;
  entry.value = 2;
  return entry;
}

TEST(FigureFileTest, IsWholeAfterEachFigure) {
  const std::string path = testing::TempDir() + "/figures.json";
  FigureFile figures(path);
  for (size_t n = 1; n <= 3; ++n) {
    const std::string name = "figure " + std::to_string(n);
    testing::internal::CaptureStderr();
    ASSERT_TRUE(figures.Add(Named(name)).ok());
    EXPECT_NE(testing::internal::GetCapturedStderr().find(" s for " + name + "\n"),
              std::string::npos);
    std::ifstream file(path);
    const auto known = nlohmann::json::parse(file);
    ASSERT_EQ(known.size(), n);
    EXPECT_EQ(known.back()["name"], name);
  }
  EXPECT_FALSE(std::ifstream(path + ".new").good());
}

TEST(FigureFileTest, OneThatCannotBeWrittenIsAFailure) {
  EXPECT_FALSE(FigureFile(testing::TempDir() + "/no/such/folder.json").Add(Named("a")).ok());
}

}  // namespace
}  // namespace annulus

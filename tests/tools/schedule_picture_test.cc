#include "tools/draw_schedule/schedule_picture.h"

#include <fstream>
#include <sstream>

#include "gtest/gtest.h"

namespace annulus {
namespace {

std::string File(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

// The picture in the docs is what the schedule says today. To draw it again:
//   bazel run //tools/draw_schedule -- --format svg > docs/pictures/ring_schedule.svg
TEST(SchedulePictureTest, ThePictureInTheDocsIsTheSchedule) {
  EXPECT_TRUE(DrawSvg({}).value() == File("docs/pictures/ring_schedule.svg"))
      << "docs/pictures/ring_schedule.svg is not what the schedule says: draw it again";
}

TEST(SchedulePictureTest, TextNamesEveryStep) {
  const std::string text = DrawText({}).value();
  for (const char* line : {"step 0", "step 3", "rank 3", "receive from 3", "finish", "full"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line;
  }
}

TEST(SchedulePictureTest, BadOptionsAreRefused) {
  PictureOptions options;
  options.q_len = 0;
  EXPECT_FALSE(DrawSvg(options).ok());
  options.q_len = 8;
  options.strategy = Strategy::kTree;
  EXPECT_FALSE(DrawText(options).ok());
}

}  // namespace
}  // namespace annulus

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

// The pictures in the docs show the current schedules. To draw them again:
//   bazel run //tools/draw_schedule -- --documented $PWD/docs/pictures
TEST(SchedulePictureTest, ThePicturesInTheDocsAreTheSchedules) {
  const std::string page = File("docs/explanation/strategies.md");
  for (const auto& [name, options] : DocumentedPictures()) {
    EXPECT_TRUE(DrawSvg(options).value() == File("docs/pictures/" + name))
        << "docs/pictures/" << name << " is not what the schedule says: draw it again";
    EXPECT_NE(page.find("pictures/" + name), std::string::npos) << name;
  }
}

TEST(SchedulePictureTest, TextNamesEveryStep) {
  const std::string text = DrawText({}).value();
  for (const char* line : {"step 0", "step 3", "rank 3", "receive from 3", "finish", "full"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line;
  }
}

TEST(SchedulePictureTest, TextTellsWhatMovesAndMerges) {
  PictureOptions options;
  options.strategy = Strategy::kRingPassQ;
  const std::string q = DrawText(options).value();
  for (const char* words : {"queries of shard 1", "partials of shard 2", "merge rows of shard 0"}) {
    EXPECT_NE(q.find(words), std::string::npos) << words;
  }
  options.strategy = Strategy::kUlysses;
  options.heads = 8;
  const std::string ulysses = DrawText(options).value();
  for (const char* words :
       {"keys of shard 0, rows [0, 16) of heads 2 to 3", "outputs of shard 3"}) {
    EXPECT_NE(ulysses.find(words), std::string::npos) << words;
  }
}

TEST(SchedulePictureTest, BadOptionsAreRefused) {
  PictureOptions options;
  options.q_len = 0;
  EXPECT_FALSE(DrawSvg(options).ok());
  options.q_len = 8;
  options.strategy = Strategy::kAuto;
  EXPECT_FALSE(DrawText(options).ok());
}

}  // namespace
}  // namespace annulus

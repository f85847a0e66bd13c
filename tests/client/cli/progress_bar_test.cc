#include "client/cli/progress_bar.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>

#include "gtest/gtest.h"

namespace annulus {
namespace {

JobProgress At(v1::Job::State state, int64_t done, int64_t whole) {
  JobProgress progress;
  progress.state = state;
  progress.bytes_sent = progress.bytes_received = done;
  progress.bytes_to_send = progress.bytes_to_receive = whole;
  progress.segments_done = static_cast<int32_t>(done);
  progress.segments = static_cast<int32_t>(whole);
  return progress;
}

std::string Bar(int filled) { return std::string(filled, '#') + std::string(40 - filled, ' '); }

TEST(ProgressBarTest, EachPhaseHasItsOwnBar) {
  EXPECT_EQ(ProgressText(At(v1::Job::STATE_QUEUED, 3, 4)), "waiting   [" + Bar(0) + "]   0 %");
  EXPECT_EQ(ProgressText(At(v1::Job::STATE_UPLOADING, 1, 4)), "uploading [" + Bar(10) + "]  25 %");
  EXPECT_EQ(ProgressText(At(v1::Job::STATE_RUNNING, 1, 2)), "computing [" + Bar(20) + "]  50 %");
  EXPECT_EQ(ProgressText(At(v1::Job::STATE_DRAINING, 4, 4)), "fetching  [" + Bar(40) + "] 100 %");
  EXPECT_EQ(ProgressText(At(v1::Job::STATE_DRAINING, 0, 0)), "fetching  [" + Bar(0) + "]   0 %");
}

TEST(ProgressBarTest, ItIsOneLineThatGoesAway) {
  testing::internal::CaptureStderr();
  ProgressBar bar(true);
  bar.Show(At(v1::Job::STATE_UPLOADING, 1, 4));
  bar.Clear();
  bar.Show(At(v1::Job::STATE_UPLOADING, 2, 4));  // An outdated state.
  const std::string shown = testing::internal::GetCapturedStderr();
  const std::string line = ProgressText(At(v1::Job::STATE_UPLOADING, 1, 4));
  EXPECT_EQ(shown.substr(0, line.size() + 2), "\r" + line + "\r");
  EXPECT_EQ(shown.back(), '\r');
  EXPECT_EQ(shown.find_first_not_of(" \r", line.size() + 1), std::string::npos);
  EXPECT_GE(shown.size(), 2 * line.size());
}

TEST(ProgressBarTest, ItIsSilentWhereThereIsNoTerminal) {
  testing::internal::CaptureStderr();
  ProgressBar bar(false);
  bar.Show(At(v1::Job::STATE_UPLOADING, 1, 4));
  bar.Clear();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(ProgressBarTest, ItIsDrawnOnATerminalThatGoesBack) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  for (const char* dumb : {"dumb", ""}) {
    setenv("TERM", dumb, 1);
    EXPECT_FALSE(IsDrawnOn(terminal)) << dumb;
  }
  setenv("TERM", "xterm", 1);
  EXPECT_TRUE(IsDrawnOn(terminal));
  EXPECT_FALSE(IsDrawnOn(-1));
  close(terminal);
}

}  // namespace
}  // namespace annulus

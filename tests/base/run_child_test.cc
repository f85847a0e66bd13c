#include "base/run_child.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <thread>

namespace annulus {
namespace {

constexpr absl::Duration kLong = absl::Minutes(1);

ChildEnd Shell(const std::string& script, absl::Duration limit = kLong) {
  return RunChild({"/bin/sh", "-c", script}, limit);
}

TEST(RunChildTest, TellsHowItEnded) {
  const ChildEnd good = Shell("echo one; echo two >&2; echo three");
  EXPECT_EQ(good.kind, ChildEnd::Kind::kExited);
  EXPECT_EQ(good.code, 0);
  EXPECT_EQ(good.output, "one\nthree\n");
  const ChildEnd bad = Shell("exit 3");
  EXPECT_EQ(bad.kind, ChildEnd::Kind::kExited);
  EXPECT_EQ(bad.code, 3);
  const ChildEnd crashed = Shell("echo word; kill -SEGV $$");
  EXPECT_EQ(crashed.kind, ChildEnd::Kind::kSignal);
  EXPECT_EQ(crashed.code, SIGSEGV);
  EXPECT_EQ(crashed.output, "word\n");
}

// `read` of a pipe that it only writes to itself.
TEST(RunChildTest, OneThatHangsIsKilled) {
  const ChildEnd end =
      Shell("echo $$; mkfifo \"$TEST_TMPDIR/p\"; exec 3<>\"$TEST_TMPDIR/p\"; read x <&3",
            absl::Seconds(3));
  EXPECT_EQ(end.kind, ChildEnd::Kind::kLate);
  ASSERT_FALSE(end.output.empty());
  EXPECT_EQ(kill(std::stoi(end.output), 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

// Its child continues to run and has its output.
TEST(RunChildTest, ItsOwnChildrenAreNotWaitedFor) {
  const ChildEnd end =
      Shell("mkfifo \"$TEST_TMPDIR/q\"; exec 3<>\"$TEST_TMPDIR/q\"; cat <&3 & echo $!");
  EXPECT_EQ(end.kind, ChildEnd::Kind::kExited);
  ASSERT_FALSE(end.output.empty());
  kill(std::stoi(end.output), SIGKILL);
}

TEST(RunChildTest, OutputEndsSomewhere) {
  const ChildEnd end = Shell("head -c 100000 /dev/zero");
  EXPECT_EQ(end.kind, ChildEnd::Kind::kExited);
  EXPECT_EQ(end.output.size(), 4096u);
}

// The worker blocks the signals that it waits for.
TEST(RunChildTest, ItHasNoSignalBlocked) {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &blocked, &before), 0);
  const ChildEnd end = Shell("kill -TERM $$; echo alive");
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &before, nullptr), 0);
  EXPECT_EQ(end.kind, ChildEnd::Kind::kSignal);
  EXPECT_EQ(end.code, SIGTERM);
}

// Some supervisors start their programs in this state.
TEST(RunChildTest, AParentThatIgnoredItsChildren) {
  ASSERT_NE(signal(SIGCHLD, SIG_IGN), SIG_ERR);
  const ChildEnd end = Shell("echo word; exit 3", absl::Seconds(20));
  signal(SIGCHLD, SIG_DFL);
  EXPECT_EQ(end.kind, ChildEnd::Kind::kExited);
  EXPECT_EQ(end.code, 3);
  EXPECT_EQ(end.output, "word\n");
}

TEST(RunChildTest, AnEndThatAnotherTook) {
  std::atomic<bool> stop{false};
  std::thread thief([&stop] {
    while (!stop) waitpid(-1, nullptr, WNOHANG);
  });
  int taken = 0;
  for (int round = 0; round < 200 && taken == 0; ++round) {
    const ChildEnd end = Shell("exit 3", absl::Seconds(20));
    taken += end.kind == ChildEnd::Kind::kNotStarted && end.code == ECHILD ? 1 : 0;
    EXPECT_NE(end.kind, ChildEnd::Kind::kLate);
  }
  stop = true;
  thief.join();
  EXPECT_EQ(taken, 1);
}

TEST(RunChildTest, AProgramThatIsNotThere) {
  const ChildEnd end = RunChild({"/no/such/program"}, kLong);
  EXPECT_EQ(end.kind, ChildEnd::Kind::kNotStarted);
  EXPECT_EQ(end.code, ENOENT);
}

}  // namespace
}  // namespace annulus

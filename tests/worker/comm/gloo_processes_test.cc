// A peer in a separate process that dies or stops.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/steady_time.h"
#include "gtest/gtest.h"
#include "tests/worker/comm/group.h"
#include "worker/comm/gloo.h"

namespace annulus {
namespace {

void WriteText(int fd, const std::string& text) {
  const uint32_t size = text.size();
  if (write(fd, &size, sizeof(size)) != sizeof(size)) _exit(3);
  if (write(fd, text.data(), size) != static_cast<ssize_t>(size)) _exit(3);
}

// Texts are far smaller than a pipe's buffer, so each arrives as a whole.
std::string ReadText(int fd) {
  uint32_t size = 0;
  if (read(fd, &size, sizeof(size)) != sizeof(size)) return "";
  std::string text(size, '\0');
  if (read(fd, text.data(), size) != static_cast<ssize_t>(size)) return "";
  return text;
}

std::unique_ptr<Communicator> RankOfTwo(int32_t rank) {
  GlooOptions options;
  options.rank = rank;
  options.size = 2;
  options.host = "127.0.0.1";
  return *MakeGlooCommunicator(options);
}

// Rank 1, which connects and then does nothing.
class Peer {
 public:
  Peer() {
    if (pipe(to_child_) != 0 || pipe(to_parent_) != 0) abort();
    pid_ = fork();
    if (pid_ == 0) RunChild();
  }
  ~Peer() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    for (const int fd : {to_child_[0], to_child_[1], to_parent_[0], to_parent_[1]}) close(fd);
  }

  // Rank 0, connected to it.
  std::unique_ptr<Communicator> Connect() {
    auto communicator = RankOfTwo(0);
    const std::string ours = *communicator->Bootstrap(), theirs = ReadText(to_parent_[0]);
    WriteText(to_child_[1], ours);
    const absl::Status status = communicator->Connect({ours, theirs}, TestDeadline());
    EXPECT_TRUE(status.ok()) << status;
    return communicator;
  }
  void Signal(int number) { kill(pid_, number); }

 private:
  [[noreturn]] void RunChild() {
    auto communicator = RankOfTwo(1);
    const std::string ours = *communicator->Bootstrap();
    WriteText(to_parent_[1], ours);
    const std::string theirs = ReadText(to_child_[0]);
    if (!communicator->Connect({theirs, ours}, TestDeadline()).ok()) _exit(4);
    for (;;) pause();
  }

  int to_child_[2], to_parent_[2];
  pid_t pid_ = -1;
};

TEST(GlooProcesses, AKilledPeerIsLost) {
  Peer peer;
  auto communicator = peer.Connect();
  std::vector<std::byte> in(1 << 20), out(1 << 20);
  ASSERT_TRUE(
      communicator
          ->Start({SendMessage{1, out.data(), 1 << 20}}, {ReceiveMessage{1, in.data(), 1 << 20}})
          .ok());
  peer.Signal(SIGKILL);
  const absl::Time start = SteadyNow();
  const absl::Status status = communicator->Join(start + absl::Minutes(5));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(DetailOf(status).metadata["peer"], "1");
  EXPECT_LT(SteadyNow() - start, absl::Seconds(20));
}

TEST(GlooProcesses, AStoppedPeerTimesOut) {
  Peer peer;
  auto communicator = peer.Connect();
  peer.Signal(SIGSTOP);
  std::vector<std::byte> in(1 << 20), out(32 << 20);
  ASSERT_TRUE(
      communicator
          ->Start({SendMessage{1, out.data(), 32 << 20}}, {ReceiveMessage{1, in.data(), 1 << 20}})
          .ok());
  const absl::Time start = SteadyNow();
  const absl::Status status = communicator->Join(start + absl::Milliseconds(300));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_EQ(DetailOf(status).metadata["peer"], "1");
  EXPECT_LT(SteadyNow() - start, absl::Seconds(20));
}

}  // namespace
}  // namespace annulus

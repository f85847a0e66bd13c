// Who is not of the group connects in a peer's place, as one that forms a group with a lost worker
// whose ports are somebody else's by now. Its own group fails, and the process goes on.

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attention/error.h"
#include "base/steady_time.h"
#include "gtest/gtest.h"
#include "tests/comm/group.h"
#include "tests/comm/place.h"
#include "tests/sanitized.h"
#include "worker/comm/gloo.h"
#include "worker/comm/gloo_bootstrap.h"

namespace annulus {
namespace {

// One rank, and where it waits for each of the others.
struct Alone {
  explicit Alone(int32_t size, int32_t rank = 0) {
    GlooOptions options;
    options.rank = rank;
    options.size = size;
    options.host = "127.0.0.1";
    options.connect_timeout = absl::Milliseconds(20);
    comm = *MakeGlooCommunicator(options);
    bootstrap = *comm->Bootstrap();
    addresses = DecodeGlooBootstrap(bootstrap, rank, size)->addresses;
  }
  std::unique_ptr<Communicator> comm;
  std::string bootstrap;
  std::vector<std::string> addresses;
};

// Connected.
int Stranger(const std::string& address) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const timeval patience = {20, 0};
  EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
  const sockaddr_in place = PlaceOf(address);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&place), sizeof(place)), 0);
  return fd;
}

// Until who was there first has been let in, and nobody else is.
void AwaitLetIn(const std::string& address) {
  const sockaddr_in place = PlaceOf(address);
  const absl::Time deadline = TestDeadline();
  for (bool refused = false; !refused && SteadyNow() < deadline;) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    refused = connect(fd, reinterpret_cast<const sockaddr*>(&place), sizeof(place)) != 0;
    close(fd);
  }
}

// The group fails as one that has lost its peer.
void ExpectLost(Alone* rank, const Alone& other) {
  const absl::Status status =
      rank->comm->Connect({rank->bootstrap, other.bootstrap}, TestDeadline());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(DetailOf(status).metadata["peer"], "1") << status;
}

// Gloo's words before a message: its size with them, what it is, slot, offset, length, offset.
class WordsOfAStranger : public testing::TestWithParam<std::vector<uint64_t>> {};
INSTANTIATE_TEST_SUITE_P(GlooStranger, WordsOfAStranger,
                         testing::Values(std::vector<uint64_t>{56, 1, 77, 0, 8, 0},  // A message.
                                         std::vector<uint64_t>(6, 0)));  // One to a buffer.

TEST_P(WordsOfAStranger, WhoSendsWhatNobodyHasAskedForIsLetGo) {
  Alone rank(2);
  const Alone other(2, 1);
  const int stranger = Stranger(rank.addresses[1]);
  const auto bytes = static_cast<ssize_t>(GetParam().size() * sizeof(uint64_t));
  EXPECT_EQ(send(stranger, GetParam().data(), bytes, MSG_NOSIGNAL), bytes);
  char byte;
  errno = 0;
  EXPECT_LE(recv(stranger, &byte, 1, 0), 0);
  EXPECT_NE(errno, EAGAIN) << "it was not let go";
  close(stranger);
  ExpectLost(&rank, other);
}

TEST(GlooStranger, WhoIsGoneBeforeItIsLetInIsLetGo) {
  for (int round = 0; round < 50; ++round) {
    constexpr int32_t kSize = 12;
    const Alone rank(kSize);
    // Some of them are gone before Gloo's thread has come to them.
    for (int32_t peer = 1; peer < kSize; ++peer) {
      const int stranger = Stranger(rank.addresses[peer]);
      const linger hard = {1, 0};
      EXPECT_EQ(setsockopt(stranger, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard)), 0);
      close(stranger);
    }
  }
}

// Who is to connect itself lets nobody in that matters.
TEST(GlooStranger, HalfAWordOfAStrangerIsForgotten) {
  Alone first(2, 0), second(2, 1);
  const std::string at_first = first.addresses[1], at_second = second.addresses[0];
  // Of two ranks the one with the higher port connects to the other.
  const bool connects = PlaceOf(at_first).sin_port > PlaceOf(at_second).sin_port;
  const int stranger = Stranger(connects ? at_first : at_second);
  EXPECT_EQ(send(stranger, "half", 4, MSG_NOSIGNAL), 4);
  AwaitLetIn(connects ? at_first : at_second);
  const auto statuses = RunRanks(2, [&](int32_t rank) {
    Communicator& comm = rank == 0 ? *first.comm : *second.comm;
    return comm.Connect({first.bootstrap, second.bootstrap}, TestDeadline());
  });
  EXPECT_TRUE(FirstError(statuses).ok()) << FirstError(statuses);
  close(stranger);
}

// At the limit of files.
TEST(GlooStranger, WithoutASocketNobodyIsMet) {
  if (kSanitized) GTEST_SKIP() << "UBSan looks at an exception by way of a pipe";
  GlooOptions options;
  options.size = 8;
  options.host = "127.0.0.1";
  const auto comm = *MakeGlooCommunicator(options);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(0);
  close(next);
  rlimit few = before;
  few.rlim_cur = next + 3;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  const absl::Status status = comm->Bootstrap().status();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(status.message(), "Gloo cannot begin; the worker's log says why");
}

}  // namespace
}  // namespace annulus

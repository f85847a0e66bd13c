// A stranger connects in a peer's place, for example a rank that forms a group with a lost worker
// whose ports another process has now. The group fails, and the process continues.

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

#include "base/error.h"
#include "base/steady_time.h"
#include "gtest/gtest.h"
#include "tests/sanitized.h"
#include "tests/worker/comm/group.h"
#include "tests/worker/comm/place.h"
#include "worker/comm/gloo.h"
#include "worker/comm/gloo_bootstrap.h"

namespace annulus {
namespace {

// One rank, and the addresses at which it waits for the others.
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

// A connected socket.
int Stranger(const std::string& address) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const timeval patience = {20, 0};
  EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
  const sockaddr_in place = PlaceOf(address);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&place), sizeof(place)), 0);
  return fd;
}

// Waits until the first connection has been accepted and further ones are refused.
void AwaitLetIn(const std::string& address) {
  const sockaddr_in place = PlaceOf(address);
  const absl::Time deadline = TestDeadline();
  for (bool refused = false; !refused && SteadyNow() < deadline;) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    refused = connect(fd, reinterpret_cast<const sockaddr*>(&place), sizeof(place)) != 0;
    close(fd);
  }
}

// Expects the failure of a group that has lost its peer.
void ExpectLost(Alone* rank, const Alone& other) {
  const absl::Status status =
      rank->comm->Connect({rank->bootstrap, other.bootstrap}, TestDeadline());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(DetailOf(status).metadata["peer"], "1") << status;
}

// Gloo's header of a message: total size, kind, slot, offset, length, offset.
class WordsOfAStranger : public testing::TestWithParam<std::vector<uint64_t>> {};
INSTANTIATE_TEST_SUITE_P(GlooStranger, WordsOfAStranger,
                         testing::Values(std::vector<uint64_t>{56, 1, 77, 0, 8, 0},  // A message.
                                         std::vector<uint64_t>(6, 0)));  // A message to a buffer.

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
    // Some are gone before Gloo's thread has accepted them.
    for (int32_t peer = 1; peer < kSize; ++peer) {
      const int stranger = Stranger(rank.addresses[peer]);
      const linger hard = {1, 0};
      EXPECT_EQ(setsockopt(stranger, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard)), 0);
      close(stranger);
    }
  }
}

// Two ranks; the connecting one has accepted a stranger.
struct LetIn {
  LetIn() {
    // The rank with the higher port connects to the other.
    const std::string &at_first = first.addresses[1], &at_second = second.addresses[0];
    const bool connects = PlaceOf(at_first).sin_port > PlaceOf(at_second).sin_port;
    stranger = Stranger(connects ? at_first : at_second);
    EXPECT_EQ(send(stranger, "half", 4, MSG_NOSIGNAL), 4);
    AwaitLetIn(connects ? at_first : at_second);
    client = connects ? first.comm.get() : second.comm.get();
  }
  ~LetIn() { close(stranger); }
  std::vector<std::string> Bootstraps() const { return {first.bootstrap, second.bootstrap}; }

  Alone first{2, 0}, second{2, 1};
  Communicator* client = nullptr;
  int stranger = -1;
};

TEST(GlooStranger, HalfAWordOfAStrangerIsForgotten) {
  const LetIn group;
  const auto statuses = RunRanks(2, [&](int32_t rank) {
    const Alone& of = rank == 0 ? group.first : group.second;
    return of.comm->Connect(group.Bootstraps(), TestDeadline());
  });
  EXPECT_TRUE(FirstError(statuses).ok()) << FirstError(statuses);
}

// No file can be opened with this number or a higher one.
class FilesBelow {
 public:
  explicit FilesBelow(rlim_t number) {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit few = before_;
    few.rlim_cur = number;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~FilesBelow() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_;
};
constexpr char kLooks[] = "UBSan looks at an exception by way of a pipe";

TEST(GlooStranger, WithoutASocketNobodyIsMet) {
  if (kSanitized) GTEST_SKIP() << kLooks;
  GlooOptions options;
  options.size = 8;
  options.host = "127.0.0.1";
  const auto comm = *MakeGlooCommunicator(options);
  const int next = dup(0);
  close(next);
  absl::Status status;
  {
    const FilesBelow some(next + 3);
    status = comm->Bootstrap().status();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(status.message(), "Gloo cannot start; the cause is in the worker's log");
}

TEST(GlooStranger, WhoHasAStrangersSocketAndNoneOfItsOwnFails) {
  if (kSanitized) GTEST_SKIP() << kLooks;
  const LetIn group;
  absl::Status status;
  {
    const FilesBelow none(3);
    status = group.client->Connect(group.Bootstraps(), TestDeadline());
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

}  // namespace
}  // namespace annulus

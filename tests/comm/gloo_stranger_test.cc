// Who is not of the group connects in a peer's place, as one that forms a group with a lost worker
// whose ports are somebody else's by now. Its own group fails, and the process goes on.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/error.h"
#include "gtest/gtest.h"
#include "tests/comm/group.h"
#include "worker/comm/gloo.h"
#include "worker/comm/gloo_bootstrap.h"

namespace annulus {
namespace {

// One rank, and where it waits for each of the others.
struct Alone {
  explicit Alone(int32_t size) {
    GlooOptions options;
    options.size = size;
    options.host = "127.0.0.1";
    options.connect_timeout = absl::Milliseconds(20);
    comm = *MakeGlooCommunicator(options);
    bootstrap = *comm->Bootstrap();
    addresses = DecodeGlooBootstrap(bootstrap, 0, size)->addresses;
  }
  std::unique_ptr<Communicator> comm;
  std::string bootstrap;
  std::vector<std::string> addresses;
};

// Connected.
int Stranger(const std::string& address) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in place;
  std::memcpy(&place, address.data(), sizeof(place));
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&place), sizeof(place)), 0);
  return fd;
}

// The group fails as one that has lost its peer, whose address is that of `other`.
void ExpectLost(Alone* rank, const Alone& other) {
  GlooBootstrap bootstrap = *DecodeGlooBootstrap(other.bootstrap, 0, 2);
  bootstrap.rank = 1;
  std::swap(bootstrap.addresses[0], bootstrap.addresses[1]);
  const absl::Status status =
      rank->comm->Connect({rank->bootstrap, EncodeGlooBootstrap(bootstrap)}, TestDeadline());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(DetailOf(status).metadata["peer"], "1") << status;
}

TEST(GlooStranger, WhoSendsWhatNobodyHasAskedForIsLetGo) {
  Alone rank(2);
  const Alone other(2);
  const int stranger = Stranger(rank.addresses[1]);
  // Gloo's words before a message: its size with them, that it is one, slot, offset, length,
  // offset.
  const uint64_t words[6] = {sizeof(words) + 8, 1, 77, 0, 8, 0};
  EXPECT_EQ(send(stranger, words, sizeof(words), MSG_NOSIGNAL),
            static_cast<ssize_t>(sizeof(words)));
  char byte;
  EXPECT_LE(recv(stranger, &byte, 1, 0), 0);
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

}  // namespace
}  // namespace annulus

// A peer that is gone when the others greet it. AddressSanitizer shows that Gloo does not write to
// greetings after they are destroyed.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "gtest/gtest.h"
#include "tests/worker/comm/group.h"
#include "tests/worker/comm/place.h"
#include "worker/comm/gloo.h"
#include "worker/comm/gloo_bootstrap.h"

namespace annulus {
namespace {

// Ranks 0 to 7 are real. Sockets of this test replace the other two.
constexpr int32_t kReal = 8, kGone = 8, kLast = 9, kSize = 10;

// The rank with the higher port connects to the other.
std::string WithHighestPort(const std::string& address) {
  sockaddr_in place = PlaceOf(address);
  place.sin_port = htons(65535);
  return WithPlace(address, place);
}

class Socket {
 public:
  explicit Socket(const std::string& address) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    const sockaddr_in place = PlaceOf(address);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&place), sizeof(place)), 0);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }

  // Reads at least a byte; 0 at the end.
  ssize_t Read() const {
    char bytes[4096];
    return std::max<ssize_t>(0, recv(fd_, bytes, sizeof(bytes), 0));
  }
  // Closes the write side and waits until the other end has closed.
  void Leave() const {
    shutdown(fd_, SHUT_WR);
    while (Read() > 0) continue;
  }

 private:
  int fd_;
};

class GlooGreeting : public testing::TestWithParam<int> {
 protected:
  GlooGreeting() {
    for (int32_t rank = 0; rank < kReal; ++rank) {
      GlooOptions options;
      options.rank = rank;
      options.size = kSize;
      options.host = "127.0.0.1";
      options.connect_timeout = absl::Seconds(10);
      ranks_.push_back(*MakeGlooCommunicator(options));
      bootstraps_.push_back(*ranks_.back()->Bootstrap());
      addresses_.push_back(DecodeGlooBootstrap(bootstraps_.back(), rank, kSize)->addresses);
    }
    for (const int32_t rank : {kGone, kLast}) {
      GlooBootstrap bootstrap{rank, std::vector<std::string>(kSize)};
      for (int32_t peer = 0; peer < kSize; ++peer) {
        if (peer != rank) bootstrap.addresses[peer] = WithHighestPort(addresses_[0][1]);
      }
      bootstraps_.push_back(EncodeGlooBootstrap(bootstrap));
    }
  }

  Group ranks_;
  std::vector<std::string> bootstraps_;
  std::vector<std::vector<std::string>> addresses_;  // One list for each real rank, by peer.
};

TEST_P(GlooGreeting, APeerThatIsGoneWhenItIsGreetedIsLost) {
  absl::Status first;
  RunRanks(kReal + 1, [&](int32_t rank) -> absl::Status {
    if (rank < kReal) {
      const absl::Status status = ranks_[rank]->Connect(bootstraps_, TestDeadline());
      if (rank == 0) first = status;
      return status;
    }
    std::vector<Socket> gone, last;
    for (int32_t peer = 1; peer < kReal; ++peer) {
      gone.emplace_back(addresses_[peer][kGone]);
      last.emplace_back(addresses_[peer][kLast]);
    }
    const Socket at_first(addresses_[0][kGone]);
    const ssize_t word = at_first.Read();  // Rank 0 has continued to the last rank.
    EXPECT_GT(word, 0);
    at_first.Leave();
    // A second message to the last rank shows that all others have greeted rank 0.
    for (const Socket& socket : last) {
      for (ssize_t heard = 0; heard < 2 * word;) {
        const ssize_t bytes = socket.Read();
        if (bytes == 0) break;
        heard += bytes;
      }
    }
    const Socket opens(addresses_[0][kLast]);
    while (opens.Read() > 0) continue;  // Until rank 0 has left.
    return absl::OkStatus();
  });
  EXPECT_EQ(first.code(), absl::StatusCode::kUnavailable) << first;
  EXPECT_EQ(DetailOf(first).metadata["peer"], absl::StrCat(kGone)) << first;
}

// The race is a matter of microseconds.
INSTANTIATE_TEST_SUITE_P(Again, GlooGreeting, testing::Range(0, 12));

}  // namespace
}  // namespace annulus

// A network flips a bit in the middle of a message. TCP's own checksum passes one in 65,536 damaged
// segments. A relay, like a machine with bad memory, computes a correct checksum for the damaged
// data.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "gtest/gtest.h"
#include "tests/worker/comm/group.h"
#include "tests/worker/comm/place.h"
#include "worker/comm/communicator_base.h"
#include "worker/comm/gloo.h"
#include "worker/comm/gloo_bootstrap.h"
#include "worker/comm/message_seal.h"

namespace annulus {
namespace {

constexpr int64_t kBytes = 1 << 20;

std::string At(const std::string& address, const std::string& host, in_port_t port) {
  sockaddr_in place = PlaceOf(address);
  place.sin_addr.s_addr = inet_addr(host.c_str());
  place.sin_port = port;
  return WithPlace(address, place);
}

// Relays bytes between a client and `to`, and flips a bit of one byte sent to `to`.
class Relay {
 public:
  Relay(const std::string& host, const std::string& to, int64_t flipped)
      : to_(to), flipped_(flipped), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in place = PlaceOf(At(to, host, 0));
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&place), sizeof(place)), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    socklen_t length = sizeof(place);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&place), &length), 0);
    address_ = At(to, host, place.sin_port);
    thread_ = std::thread([this] { Pass(); });
  }
  ~Relay() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  const std::string& address() const { return address_; }

 private:
  void Pass() {
    const int from = accept(listener_, nullptr, nullptr);
    if (from < 0) return;  // No client has connected.
    const int to = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in place = PlaceOf(to_);
    EXPECT_EQ(connect(to, reinterpret_cast<const sockaddr*>(&place), sizeof(place)), 0);
    std::thread back([&] { Copy(to, from, -1); });
    Copy(from, to, flipped_);
    back.join();
    close(from);
    close(to);
  }
  // Copies until the connection ends.
  static void Copy(int from, int to, int64_t flipped) {
    std::vector<char> bytes(65536);
    int64_t passed = 0;
    for (ssize_t got; (got = recv(from, bytes.data(), bytes.size(), 0)) > 0; passed += got) {
      if (passed <= flipped && flipped < passed + got) bytes[flipped - passed] ^= 4;
      for (ssize_t sent = 0; sent < got;) {
        const ssize_t more = send(to, bytes.data() + sent, got - sent, MSG_NOSIGNAL);
        if (more < 0) break;
        sent += more;
      }
    }
    shutdown(to, SHUT_WR);
  }

  const std::string to_;
  const int64_t flipped_;
  const int listener_;
  std::string address_;
  std::thread thread_;
};

using Messages = std::vector<std::vector<std::byte>>;

// The rank with the higher address connects to the other.
class GlooDamage : public testing::Test {
 protected:
  GlooDamage() {
    for (int32_t rank : {0, 1}) {
      GlooOptions options;
      options.rank = rank;
      options.size = 2;
      options.host = "127.0.0.2";
      group_.push_back(*MakeGlooCommunicator(options));
      bootstraps_.push_back(*group_.back()->Bootstrap());
      addresses_.push_back(DecodeGlooBootstrap(bootstraps_[rank], rank, 2)->addresses[1 - rank]);
    }
  }
  // The status of rank 0 for rank 1's messages that have passed a relay.
  absl::Status Exchange(int64_t flipped, Messages& in, const Messages& out) {
    const Relay relay("127.0.0.1", addresses_[0], flipped);
    bootstraps_[0] = EncodeGlooBootstrap({0, {"", relay.address()}});
    bootstraps_[1] = EncodeGlooBootstrap({1, {At(addresses_[1], "127.0.0.3", 1), ""}});
    const auto statuses = RunRanks(2, [&](int32_t r) {
      std::vector<SendMessage> sends;
      std::vector<ReceiveMessage> receives;
      if (r == 0) {
        for (auto& m : in) receives.push_back({1, m.data(), static_cast<int64_t>(m.size())});
      } else {
        for (auto& m : out) sends.push_back({0, m.data(), static_cast<int64_t>(m.size())});
      }
      absl::Status status = group_[r]->Connect(bootstraps_, TestDeadline());
      if (status.ok()) status = group_[r]->Start(sends, receives);
      if (status.ok()) status = group_[r]->Join(TestDeadline());
      return status;
    });
    group_.clear();
    EXPECT_TRUE(statuses[1].ok()) << statuses[1];
    return statuses[0];
  }

  Group group_;
  std::vector<std::string> bootstraps_, addresses_;
};

Messages Of(std::vector<size_t> sizes, std::byte fill) {
  Messages messages;
  for (const size_t size : sizes) messages.emplace_back(size, fill);
  return messages;
}

void ExpectDamaged(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(DetailOf(status).reason, kReasonDamaged) << status;
  EXPECT_EQ(DetailOf(status).metadata["peer"], "1") << status;
}

TEST_F(GlooDamage, WhatIsNotDamagedArrives) {
  Messages in = Of({kBytes, 0, 7}, {}), out = Of({kBytes, 0, 7}, std::byte{7});
  const absl::Status status = Exchange(-1, in, out);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(in, out);
}

TEST_F(GlooDamage, OneBitIsNoticed) {
  Messages in = Of({kBytes}, {}), out = Of({kBytes}, std::byte{7});
  const absl::Status status = Exchange(kBytes / 2, in, out);
  EXPECT_NE(in, out) << "nothing was damaged";
  ExpectDamaged(status);
}

TEST_F(GlooDamage, OneBitOfALaterMessageIsNoticed) {
  Messages in = Of({kBytes, kBytes}, {}), out = Of({kBytes, kBytes}, std::byte{7});
  const absl::Status status = Exchange(kBytes / 2 * 3, in, out);
  EXPECT_NE(in, out) << "nothing was damaged";
  EXPECT_TRUE(in[0] == out[0] || in[1] == out[1]);
  ExpectDamaged(status);
}

// Gloo accepts a message that is shorter than requested.
TEST_F(GlooDamage, AShorterMessageIsNoticed) {
  Messages in = Of({kBytes}, {}), out = Of({kBytes / 2}, {});
  ExpectDamaged(Exchange(-1, in, out));
}

TEST(MessageSeal, IsOfBytesAndTheirNumber) {
  const std::byte data[9] = {std::byte{'1'}, std::byte{'2'}, std::byte{'3'},
                             std::byte{'4'}, std::byte{'5'}, std::byte{'6'},
                             std::byte{'7'}, std::byte{'8'}, std::byte{'9'}};
  MessageSeal seal;
  seal.Add(data, 4);
  seal.Add(data + 4, 5);
  EXPECT_EQ(seal.bytes, 9u);
  EXPECT_EQ(seal.crc32c, 0xE3069283u);
  EXPECT_TRUE(CheckSeal(1, seal, seal).ok());
  MessageSeal other = seal;
  other.crc32c ^= 1;
  ExpectDamaged(CheckSeal(1, seal, other));
  other = seal;
  ++other.bytes;
  ExpectDamaged(CheckSeal(1, seal, other));
}

}  // namespace
}  // namespace annulus

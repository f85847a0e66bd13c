#include "tests/server/unread_call.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/steady_time.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

constexpr uint8_t kData = 0, kHeaders = 1, kReset = 3, kSettings = 4, kPing = 6, kGoAway = 7;
constexpr uint8_t kEndStream = 1, kAck = 1, kEndHeaders = 4;
constexpr size_t kHeadBytes = 9;
// Frame size, and the window that it may use at first.
constexpr size_t kFrame = 16384, kWindow = 65535;

std::string BigEndian(uint64_t number, int bytes) {
  std::string text;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) {
    text.push_back(static_cast<char>(number >> shift));
  }
  return text;
}

// Without indexing or compression.
std::string Field(absl::string_view name, absl::string_view value) {
  std::string field(1, '\0');
  for (absl::string_view text : {name, value}) {
    field.push_back(static_cast<char>(text.size()));
    field.append(text.begin(), text.end());
  }
  return field;
}

}  // namespace

UnreadCall::UnreadCall(int port, const std::string& method,
                       const google::protobuf::MessageLite& request, Manner manner)
    : manner_(manner), socket_(socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  EXPECT_EQ(connect(socket_, generic, sizeof(address)), 0);
  constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  (void)send(socket_, kPreface.data(), kPreface.size(), MSG_NOSIGNAL);
  SendFrame(kSettings, 0, 0, BigEndian(4, 2) + BigEndian(0, 4));  // SETTINGS_INITIAL_WINDOW_SIZE.
  SendFrame(kHeaders, kEndHeaders, 1,
            Field(":method", "POST") + Field(":scheme", "http") + Field(":path", method) +
                Field(":authority", "localhost") + Field("content-type", "application/grpc") +
                Field("te", "trailers"));
  const std::string message = request.SerializeAsString();
  std::string data = BigEndian(0, 1) + BigEndian(message.size(), 4) + message;
  EXPECT_LE(data.size(), kWindow) << "it does not wait for more";
  for (; data.size() > kFrame; data.erase(0, kFrame))
    SendFrame(kData, 0, 1, data.substr(0, kFrame));
  SendFrame(kData, manner == Manner::kStaysOpen ? 0 : kEndStream, 1, data);
}

UnreadCall::~UnreadCall() { close(socket_); }

void UnreadCall::SendFrame(uint8_t kind, uint8_t flags, uint32_t stream,
                           absl::string_view payload) {
  std::string frame = BigEndian(payload.size(), 3) + BigEndian(kind, 1) + BigEndian(flags, 1) +
                      BigEndian(stream, 4);
  frame.append(payload.begin(), payload.end());
  (void)send(socket_, frame.data(), frame.size(), MSG_NOSIGNAL);
}

void UnreadCall::TakeFrames() {
  const auto byte = [this](size_t i) { return static_cast<uint8_t>(in_[i]); };
  while (in_.size() >= kHeadBytes) {
    const size_t length = byte(0) << 16 | byte(1) << 8 | byte(2);
    if (in_.size() < kHeadBytes + length) return;
    const uint8_t kind = byte(3), flags = byte(4);
    const std::string payload = in_.substr(kHeadBytes, length);
    in_.erase(0, kHeadBytes + length);
    EXPECT_TRUE(kind != kData || payload.empty()) << "beyond the window";
    const bool asks = kind == kSettings || (kind == kPing && manner_ != Manner::kIsDeaf);
    if (asks && (flags & kAck) == 0) {
      SendFrame(kind, kAck, 0, kind == kPing ? payload : "");
    }
    ended_ |= kind == kReset || kind == kGoAway || (kind == kHeaders && (flags & kEndStream) != 0);
  }
}

bool UnreadCall::EndsWithin(absl::Duration time) {
  const absl::Time deadline = SteadyNow() + time;
  while (!ended_) {
    pollfd ready{socket_, POLLIN, 0};
    const int64_t left = absl::ToInt64Milliseconds(deadline - SteadyNow());
    if (poll(&ready, 1, static_cast<int>(std::max<int64_t>(0, left))) <= 0) return false;
    char bytes[4096];
    const ssize_t count = recv(socket_, bytes, sizeof(bytes), 0);
    if (count <= 0) return ended_ = true;
    in_.append(bytes, static_cast<size_t>(count));
    TakeFrames();
  }
  return true;
}

}  // namespace annulus

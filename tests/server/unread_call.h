#ifndef ANNULUS_TESTS_SERVER_UNREAD_CALL_H_
#define ANNULUS_TESTS_SERVER_UNREAD_CALL_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/message_lite.h"

namespace annulus {

// A call in plain HTTP/2 whose client sends one request of less than 64 KiB and reads nothing: its
// stream windows are 0, which no gRPC library allows. Has its own connection.
class UnreadCall {
 public:
  // Additional client behaviour: as gRPC does, keep its side open, or answer no pings.
  enum class Manner { kPlain, kStaysOpen, kIsDeaf };

  // `port`: on this machine. `method`: "/annulus.v1.Jobs/GetJob".
  UnreadCall(int port, const std::string& method, const google::protobuf::MessageLite& request,
             Manner manner = Manner::kPlain);
  ~UnreadCall();
  UnreadCall(const UnreadCall&) = delete;
  UnreadCall& operator=(const UnreadCall&) = delete;

  // True if the server ends the call within `time`.
  bool EndsWithin(absl::Duration time);

 private:
  void SendFrame(uint8_t kind, uint8_t flags, uint32_t stream, absl::string_view payload);
  // Processes all complete frames received.
  void TakeFrames();

  const Manner manner_;
  int socket_ = -1;
  std::string in_;
  bool ended_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_SERVER_UNREAD_CALL_H_

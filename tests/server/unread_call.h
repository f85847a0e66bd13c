#ifndef ANNULUS_TESTS_SERVER_UNREAD_CALL_H_
#define ANNULUS_TESTS_SERVER_UNREAD_CALL_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/message_lite.h"

namespace annulus {

// A call whose caller sends its one request, of less than 64 KiB, and takes nothing of the answer,
// in bare HTTP/2: the windows of streams are 0, which no gRPC library would say. Has a connection
// of its own.
class UnreadCall {
 public:
  // What else the caller does: what gRPC does, leave his side open, or answer no pings.
  enum class Manner { kPlain, kStaysOpen, kIsDeaf };

  // `port`: of this machine. `method`: "/annulus.v1.Jobs/GetJob".
  UnreadCall(int port, const std::string& method, const google::protobuf::MessageLite& request,
             Manner manner = Manner::kPlain);
  ~UnreadCall();
  UnreadCall(const UnreadCall&) = delete;
  UnreadCall& operator=(const UnreadCall&) = delete;

  // Whether the server ends it within `time`.
  bool EndsWithin(absl::Duration time);

 private:
  void SendFrame(uint8_t kind, uint8_t flags, uint32_t stream, absl::string_view payload);
  // Takes what is whole of what has come.
  void TakeFrames();

  const Manner manner_;
  int socket_ = -1;
  std::string in_;
  bool ended_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_SERVER_UNREAD_CALL_H_

#ifndef ANNULUS_WORKER_COMM_MESSAGE_SEAL_H_
#define ANNULUS_WORKER_COMM_MESSAGE_SEAL_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace annulus {

// Checksum sent after each message on TCP. TCP's own 16-bit checksum passes one in 65,536 damaged
// segments.
struct MessageSeal {
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
  uint32_t reserved = 0;

  // Adds the next bytes of the message.
  void Add(const std::byte* data, int64_t more);
};
static_assert(sizeof(MessageSeal) == 16, "it is sent as it is");

// OK if the received message equals the sent one. Otherwise UNAVAILABLE / MESSAGE_DAMAGED with
// metadata "peer".
absl::Status CheckSeal(int32_t peer, const MessageSeal& arrived, const MessageSeal& sent);

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_MESSAGE_SEAL_H_

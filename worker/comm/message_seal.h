#ifndef ANNULUS_WORKER_COMM_MESSAGE_SEAL_H_
#define ANNULUS_WORKER_COMM_MESSAGE_SEAL_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace annulus {

// What travels behind a message where the network is all that would notice a flipped bit: TCP's own
// sum of 16 bits passes one damaged segment of 65,536.
struct MessageSeal {
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
  uint32_t reserved = 0;

  // Of a message whose next bytes these are.
  void Add(const std::byte* data, int64_t more);
};
static_assert(sizeof(MessageSeal) == 16, "it is sent as it is");

// OK when what has arrived from the peer is what it sent; else UNAVAILABLE / MESSAGE_DAMAGED with
// metadata "peer".
absl::Status CheckSeal(int32_t peer, const MessageSeal& arrived, const MessageSeal& sent);

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_MESSAGE_SEAL_H_

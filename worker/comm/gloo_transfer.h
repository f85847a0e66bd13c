#ifndef ANNULUS_WORKER_COMM_GLOO_TRANSFER_H_
#define ANNULUS_WORKER_COMM_GLOO_TRANSFER_H_

#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "worker/comm/message_seal.h"

namespace annulus {

// A message of a step: what its sender says of it, and what has come of it by now.
struct SealedMessage {
  explicit SealedMessage(int32_t with) : peer(with) {}

  int32_t peer;
  uint64_t slot = 0;  // The seal's.
  MessageSeal seal, arrived;
};

// Of a message, or the whole of it; or a seal.
struct GlooPiece {
  int32_t peer = 0;
  std::byte* data = nullptr;
  int64_t bytes = 0;
  bool receive = false;
  SealedMessage* sealed = nullptr;  // Whose piece arrives.
};

// A piece on its way. Throws what Gloo throws.
struct GlooTransfer : GlooPiece {
  bool done = false;
  std::unique_ptr<::gloo::transport::UnboundBuffer> buffer;

  // Gloo's wait; done unless it was nudged.
  void Wait(std::chrono::milliseconds timeout) {
    done = receive ? buffer->waitRecv(nullptr, timeout) : buffer->waitSend(nullptr, timeout);
  }
  // Ends the wait under way, or the next one. Any thread.
  void Nudge() { receive ? buffer->abortWaitRecv() : buffer->abortWaitSend(); }
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_GLOO_TRANSFER_H_

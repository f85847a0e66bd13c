#ifndef ANNULUS_WORKER_COMM_GLOO_TRANSFER_H_
#define ANNULUS_WORKER_COMM_GLOO_TRANSFER_H_

#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "worker/comm/message_seal.h"

namespace annulus {

// A message of a step: the seal that its sender sent, and the seal of the bytes received so far.
struct SealedMessage {
  explicit SealedMessage(int32_t with) : peer(with) {}

  int32_t peer;
  uint64_t slot = 0;  // Slot of the seal.
  MessageSeal seal, arrived;
};

// A piece of a message, a whole message, or a seal.
struct GlooPiece {
  int32_t peer = 0;
  std::byte* data = nullptr;
  int64_t bytes = 0;
  bool receive = false;
  // The received message that this piece belongs to; nullptr for sends and seals.
  SealedMessage* sealed = nullptr;
};

// A piece in transit. Throws Gloo's exceptions.
struct GlooTransfer : GlooPiece {
  bool done = false;
  std::unique_ptr<::gloo::transport::UnboundBuffer> buffer;

  // Waits. Sets `done` unless it was nudged.
  void Wait(std::chrono::milliseconds timeout) {
    done = receive ? buffer->waitRecv(nullptr, timeout) : buffer->waitSend(nullptr, timeout);
  }
  // Interrupts the current wait, or the next one. Any thread.
  void Nudge() { receive ? buffer->abortWaitRecv() : buffer->abortWaitSend(); }
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_GLOO_TRANSFER_H_

#ifndef ANNULUS_WORKER_COMM_GLOO_H_
#define ANNULUS_WORKER_COMM_GLOO_H_

#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/comm/communicator.h"
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

struct GlooOptions {
  int32_t rank = 0;
  int32_t size = 1;
  // The address to bind: an address or host name of this machine, or the name of a network
  // interface. Give exactly one; there is no default. All ranks must use the same address family.
  std::string host;
  std::string interface;
  // Connect waits for one peer at most five times this long. This wait cannot be interrupted.
  absl::Duration connect_timeout = absl::Seconds(1);
  // Longer messages are split into pieces of this size, so that bytes_received() advances.
  int64_t piece_bytes = 4 << 20;
};

// A communicator over TCP between processes: a full mesh of Gloo pairs, without a Gloo store.
//
// Group formation (gloo.cc):
// 1. DoBootstrap creates one pair for each peer. Each pair has its own listening address. The
//    bootstrap bytes are the rank and these addresses, by peer (worker/comm/gloo_bootstrap.h).
// 2. The coordinator distributes the bytes of all ranks.
// 3. DoConnect connects each pair to the address that the peer reserved for this rank, one peer
//    after another. It also posts a sentinel: a receive that never completes. The sentinel fails
//    when the connection is lost.
// 4. Greet sends {fingerprint of all bootstraps, from, to} on each ordered pair and checks what
//    arrives. A rank of another group, or a stranger on a reused port, fails here with PEER_LOST.
//
// Steps:
// - DoStart posts receives first, then sends. A message longer than piece_bytes is split into
//   pieces. Each piece uses the next Gloo slot of its ordered pair, so the sequence numbers replace
//   tags.
// - Each message is followed by a seal: its length and CRC-32C (worker/comm/message_seal.h).
// - DoJoin waits for each piece. A ticker (worker/comm/ticker.h) interrupts the wait every 25 ms to
//   check for an abort, lost peers and the deadline, because a Gloo timeout would close all pairs.
//   After the last piece it compares the seals.
//
// Example, W = 3, rank 0: bootstrap {rank 0, addresses ["", a01, a02]}. Its pair with rank 1 gets
// a10 of rank 1's bootstrap, and rank 1's pair gets a01. The rank with the higher address opens the
// TCP connection.
//
// Errors of Join: MESSAGE_DAMAGED (a seal differs), PEER_LOST, STEP_TIMEOUT, COMMUNICATOR_ABORTED.
// Gloo's own messages contain addresses and file names, so they go to the log only.
//
// Security: connections are neither authenticated nor encrypted. Network policy must keep other
// processes away.
//
// SIGPIPE must be ignored, because Gloo writes without MSG_NOSIGNAL. The first call ignores it if
// its action is still the default.
//
// INVALID_ARGUMENT: wrong options. UNAVAILABLE: the address cannot be bound.
absl::StatusOr<std::unique_ptr<Communicator>> MakeGlooCommunicator(const GlooOptions& options);

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_GLOO_H_

#ifndef ANNULUS_WORKER_COMM_GLOO_H_
#define ANNULUS_WORKER_COMM_GLOO_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/comm/communicator.h"

namespace annulus {

struct GlooOptions {
  int32_t rank = 0;
  int32_t size = 1;
  // Where to bind: an address or host name of this machine, or the name of a network interface.
  // Exactly one of them; nothing is guessed. All ranks must use the same address family.
  std::string host;
  std::string interface;
  // Connect waits for one peer at most five times this long, and cannot be interrupted meanwhile.
  absl::Duration connect_timeout = absl::Seconds(1);
  // Longer messages travel in pieces, so that progress shows.
  int64_t piece_bytes = 4 << 20;
};

// TCP between processes: a full mesh, made without a store. The process must ignore SIGPIPE; the
// first call sees to it where nobody else has. Not authenticated and not encrypted: peers are kept
// apart by network policy, and a rank refuses a peer of another group. Every message is sealed: one
// that was damaged on its way fails the Join that it came for (MESSAGE_DAMAGED).
// INVALID_ARGUMENT (options), UNAVAILABLE (cannot bind).
absl::StatusOr<std::unique_ptr<Communicator>> MakeGlooCommunicator(const GlooOptions& options);

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_GLOO_H_

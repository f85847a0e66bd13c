#ifndef ANNULUS_WORKER_COMM_COMMUNICATOR_H_
#define ANNULUS_WORKER_COMM_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace annulus {

struct SendMessage {
  int32_t peer = 0;
  const std::byte* data = nullptr;
  int64_t bytes = 0;  // >= 0; a message of 0 bytes is a message.
};

struct ReceiveMessage {
  int32_t peer = 0;
  std::byte* data = nullptr;
  int64_t bytes = 0;  // >= 0
};

// One rank's place in a group of `size` ranks. Not thread-safe: one owner thread (the lane) makes
// every call but Abort and Bootstrap, which another may make before them. Messages carry no tags:
// the n-th send from a to b in the group's life is received by the n-th receive from a at b, of the
// same size (ranks compare digests before a start; a back-end need not survive a lie about it). The
// first error, a wrong argument or order of verbs included, poisons the communicator: every later
// verb returns FAILED_PRECONDITION, peers that wait for this rank fail soon, and the group must be
// formed again. Memory handed to Start must stay valid until Join, or the Start that failed, has
// returned, or the communicator is destroyed. Destroy it in its owner thread: what a joined step
// sent still arrives. Deadlines are times of base/steady_time.h.
class Communicator {
 public:
  virtual ~Communicator() = default;

  // The bytes that the other ranks need to connect to this one. Call once, before Connect.
  virtual absl::StatusOr<std::string> Bootstrap() = 0;

  // Connects to all ranks. `bootstraps` holds every rank's bytes, own included, by rank. Exchanges
  // one message on every ordered pair, so that no pair connects for the first time in a job.
  // INVALID_ARGUMENT, DEADLINE_EXCEEDED, UNAVAILABLE, ABORTED.
  virtual absl::Status Connect(absl::Span<const std::string> bootstraps, absl::Time deadline) = 0;

  // Starts all transfers of a step; waits for none. One step at a time: Join comes before the next
  // Start. INVALID_ARGUMENT, UNAVAILABLE, ABORTED.
  virtual absl::Status Start(absl::Span<const SendMessage> sends,
                             absl::Span<const ReceiveMessage> receives) = 0;

  // On OK, work submitted to this rank's device from now on sees what the step received, and may
  // overwrite what it sent. DEADLINE_EXCEEDED, UNAVAILABLE (a peer is gone, or a back-end that
  // checks what arrives found it damaged), ABORTED (Abort was called); the detail's metadata "peer"
  // holds the rank where it is known.
  virtual absl::Status Join(absl::Time deadline) = 0;

  // From any thread: makes a blocked or later call fail soon with ABORTED. Poisons. Idempotent.
  virtual void Abort() = 0;

  virtual int32_t rank() const = 0;
  virtual int32_t size() const = 0;
  // Bytes received so far (atomic): progress for a watchdog.
  virtual int64_t bytes_received() const = 0;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_COMMUNICATOR_H_

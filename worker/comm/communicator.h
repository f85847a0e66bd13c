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
  int64_t bytes = 0;  // >= 0. A message of 0 bytes still counts as a message.
};

struct ReceiveMessage {
  int32_t peer = 0;
  std::byte* data = nullptr;
  int64_t bytes = 0;  // >= 0
};

// One rank's end of a group of `size` ranks: point-to-point messages between all of them.
// Back-ends: TCP (worker/comm/gloo.h) and GPUs (worker/comm/nccl.h). CommunicatorBase has the rules
// that they share.
//
// Life of a group, on each rank:
// 1. Bootstrap returns the bytes that peers need to connect. The worker sends them to the
//    coordinator, which sends every rank's bytes to all ranks.
// 2. Connect connects all pairs and exchanges one message on each ordered pair.
// 3. For each step of a schedule (worker/executor/executor.h): Start begins all transfers and
//    returns; Join waits for them.
// 4. The destructor closes the connections.
//
// Example, two ranks that swap a block: both call Start({{peer, mine, n}}, {{peer, theirs, n}}),
// compute on `mine`, and call Join. After Join, `theirs` holds the peer's block.
//
// Matching: messages have no tags. The n-th send from a to b in the group's life matches the n-th
// receive from a at b. Both must have the same size. The coordinator compares the ranks' digests of
// their schedules before a start; a back-end may crash if the sizes still differ.
//
// Errors: the first error poisons the communicator, including a wrong argument and a call in the
// wrong order. Then every later call returns FAILED_PRECONDITION, peers that wait for this rank
// fail soon, and a new group must be formed. Reasons are in worker/comm/communicator_base.h.
//
// Threads: not thread-safe. One owner thread (the lane) makes all calls and destroys the
// communicator. Exceptions: Abort runs on any thread, and another thread may call Bootstrap before
// the owner's first call.
//
// Memory: the buffers of Start must stay valid until Join returns, a failing Start returns, or the
// communicator is destroyed. After a successful Join, sent data still reaches the peer if the
// communicator is destroyed.
//
// Deadlines are times of base/steady_time.h.
class Communicator {
 public:
  virtual ~Communicator() = default;

  // The bytes that other ranks need to connect to this one. Call once, before Connect.
  virtual absl::StatusOr<std::string> Bootstrap() = 0;

  // Connects to all ranks. `bootstraps` holds the bytes of every rank, this one included, by rank.
  // Exchanges one message on each ordered pair, so that no pair connects during a job.
  // INVALID_ARGUMENT, DEADLINE_EXCEEDED, UNAVAILABLE, ABORTED.
  virtual absl::Status Connect(absl::Span<const std::string> bootstraps, absl::Time deadline) = 0;

  // Starts all transfers of a step and does not wait for them. Call Join before the next Start.
  // INVALID_ARGUMENT, UNAVAILABLE, ABORTED.
  virtual absl::Status Start(absl::Span<const SendMessage> sends,
                             absl::Span<const ReceiveMessage> receives) = 0;

  // Waits for the transfers of Start. After OK, work that is then queued on this rank's device may
  // read what was received and overwrite what was sent. DEADLINE_EXCEEDED. UNAVAILABLE: a peer is
  // gone, or a back-end that verifies messages found one damaged. ABORTED: Abort was called.
  // Metadata "peer" of the error detail holds the rank if it is known.
  virtual absl::Status Join(absl::Time deadline) = 0;

  // Poisons the communicator: a blocked or later call fails soon with ABORTED. Any thread.
  // Idempotent.
  virtual void Abort() = 0;

  virtual int32_t rank() const = 0;
  virtual int32_t size() const = 0;
  // The number of bytes received so far; a watchdog reads it as progress. Any thread.
  virtual int64_t bytes_received() const = 0;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_COMMUNICATOR_H_

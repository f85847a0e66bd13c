#ifndef ANNULUS_TESTS_WORKER_COMM_IN_PROCESS_H_
#define ANNULUS_TESTS_WORKER_COMM_IN_PROCESS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/comm/communicator.h"

namespace annulus {

// Moves the bytes of messages where the CPU does not: between blocks in the memory of a GPU that
// the ranks share.
class MessageMover {
 public:
  virtual ~MessageMover() = default;
  // Runs on the owner thread of `rank`, before a step's messages are posted. The messages run after
  // all queued work of the rank's device. Does not wait.
  virtual absl::Status BeginStep(int32_t rank) = 0;
  // Runs on the hub's thread. Returns when the bytes are at `to`. An error applies to both ranks.
  virtual absl::Status Move(int32_t source, int32_t target, const std::byte* from, std::byte* to,
                            int64_t bytes) = 0;
};

// Connects the ranks of one group in one process. Its thread moves the messages, so memory is read
// and written between Start and Join, as with a network. Thread-safe.
class InProcessHub {
 public:
  struct Options {
    int32_t size = 1;
    // Every message waits for a random time below this before its bytes move, so messages may
    // overtake each other, even on one pair. Zero: bytes move at once.
    absl::Duration max_delay = absl::ZeroDuration();
    uint64_t seed = 0;
    std::shared_ptr<MessageMover> mover = nullptr;  // nullptr: the hub's thread copies the bytes.
  };
  explicit InProcessHub(const Options& options);
  ~InProcessHub();

  // The communicator of `rank`. Call once for each rank. It keeps the hub's state alive.
  std::unique_ptr<Communicator> MakeCommunicator(int32_t rank);
  // True if the rank is in a Join whose messages have not all moved.
  bool Waits(int32_t rank) const;

  class State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_COMM_IN_PROCESS_H_

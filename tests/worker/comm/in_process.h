#ifndef ANNULUS_TESTS_WORKER_COMM_IN_PROCESS_H_
#define ANNULUS_TESTS_WORKER_COMM_IN_PROCESS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/comm/communicator.h"

namespace annulus {

// How the bytes of messages move where that is not the processor's work: between blocks in the
// memory of a GPU that the ranks share.
class MessageMover {
 public:
  virtual ~MessageMover() = default;
  // Owner thread of `rank`, before the messages of a step are posted: they come after all that the
  // rank's device has been given, and nobody waits for that here.
  virtual absl::Status BeginStep(int32_t rank) = 0;
  // The hub's thread: returns when the bytes lie at `to`. What fails, fails for both ranks.
  virtual absl::Status Move(int32_t source, int32_t target, const std::byte* from, std::byte* to,
                            int64_t bytes) = 0;
};

// Where the ranks of one group in one process meet. Its thread moves the messages, so that memory
// is read and written between Start and Join as it is with a network. Thread-safe.
class InProcessHub {
 public:
  struct Options {
    int32_t size = 1;
    // Every message waits for a random time below it before its bytes move, in whatever order the
    // times give (messages of one pair included). Zero: bytes move at once.
    absl::Duration max_delay = absl::ZeroDuration();
    uint64_t seed = 0;
    std::shared_ptr<MessageMover> mover = nullptr;  // Null: bytes are copied by the hub's thread.
  };
  explicit InProcessHub(const Options& options);
  ~InProcessHub();

  // The communicator of `rank`; once for each rank. It keeps what it needs of the hub alive.
  std::unique_ptr<Communicator> MakeCommunicator(int32_t rank);
  // Whether it is in a Join whose messages have not all moved.
  bool Waits(int32_t rank) const;

  class State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_COMM_IN_PROCESS_H_

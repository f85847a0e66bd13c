#ifndef ANNULUS_WORKER_COMM_IN_PROCESS_H_
#define ANNULUS_WORKER_COMM_IN_PROCESS_H_

#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "worker/comm/communicator.h"

namespace annulus {

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
  };
  explicit InProcessHub(const Options& options);
  ~InProcessHub();

  // The communicator of `rank`; once for each rank. It keeps what it needs of the hub alive.
  std::unique_ptr<Communicator> MakeCommunicator(int32_t rank);

  class State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_COMM_IN_PROCESS_H_

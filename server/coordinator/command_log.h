#ifndef ANNULUS_SERVER_COORDINATOR_COMMAND_LOG_H_
#define ANNULUS_SERVER_COORDINATOR_COMMAND_LOG_H_

#include <cstdint>
#include <deque>

#include "annulus/control/v1/control.pb.h"

namespace annulus {

// The commands of one worker incarnation in one term: numbered 1, 2, 3, … and kept until
// acknowledged, so that a broken stream loses none and repeats none.
class CommandLog {
 public:
  explicit CommandLog(size_t limit) : limit_(limit) {}

  // Numbers the command and keeps it.
  const control::v1::WorkerCommand& Append(control::v1::WorkerCommand command);
  // Forgets commands up to `id`. An acknowledgement of what was never sent is ignored.
  void Acknowledge(int64_t id);
  // What is to be sent again, in order.
  const std::deque<control::v1::WorkerCommand>& unacknowledged() const { return commands_; }
  int64_t last_id() const { return last_id_; }
  bool overflown() const { return commands_.size() > limit_; }

 private:
  size_t limit_;
  int64_t last_id_ = 0;
  std::deque<control::v1::WorkerCommand> commands_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_COMMAND_LOG_H_

#ifndef ANNULUS_SERVER_COORDINATOR_STATE_COMMAND_LOG_H_
#define ANNULUS_SERVER_COORDINATOR_STATE_COMMAND_LOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>

#include "server/coordinator/state/command.h"

namespace annulus {

// The commands of one worker incarnation in one term: numbered 1, 2, 3, … and kept until
// acknowledged, so that a broken stream loses none and repeats none.
class CommandLog {
 public:
  // Of what is kept; specs count, though other logs share them.
  struct Limits {
    size_t commands = 0;
    size_t bytes = 0;
  };
  explicit CommandLog(Limits limits) : limits_(limits) {}

  // Numbers the command and keeps it.
  const Command& Append(Command command);
  // Forgets commands up to `id`. An acknowledgement of what was never sent is ignored.
  void Acknowledge(int64_t id);
  // What is to be sent again, in order.
  const std::deque<Command>& unacknowledged() const { return commands_; }
  int64_t last_id() const { return last_id_; }
  bool overflown() const { return commands_.size() > limits_.commands || bytes_ > limits_.bytes; }

 private:
  Limits limits_;
  int64_t last_id_ = 0;
  size_t bytes_ = 0;
  std::deque<Command> commands_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_COMMAND_LOG_H_

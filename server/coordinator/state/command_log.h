#ifndef ANNULUS_SERVER_COORDINATOR_STATE_COMMAND_LOG_H_
#define ANNULUS_SERVER_COORDINATOR_STATE_COMMAND_LOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>

#include "server/coordinator/state/command.h"

namespace annulus {

// The commands of one worker incarnation in one term. They are numbered 1, 2, 3, … and kept until
// they are acknowledged, so that a broken stream loses and repeats none.
class CommandLog {
 public:
  // Limits of the kept commands. Specs count, although other logs share them.
  struct Limits {
    size_t commands = 0;
    size_t bytes = 0;
  };
  explicit CommandLog(Limits limits) : limits_(limits) {}

  // Numbers the command and keeps it.
  const Command& Append(Command command);
  // Removes commands up to `id`. Acknowledgements of ids that were never sent are ignored.
  void Acknowledge(int64_t id);
  // The commands to send again, in order.
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

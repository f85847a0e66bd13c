#include "server/coordinator/state/command_log.h"

#include <utility>

namespace annulus {

const Command& CommandLog::Append(Command command) {
  command.message.set_id(++last_id_);
  bytes_ += command.ByteSizeLong();
  commands_.push_back(std::move(command));
  return commands_.back();
}

void CommandLog::Acknowledge(int64_t id) {
  if (id > last_id_) return;
  while (!commands_.empty() && commands_.front().message.id() <= id) {
    bytes_ -= commands_.front().ByteSizeLong();
    commands_.pop_front();
  }
}

}  // namespace annulus

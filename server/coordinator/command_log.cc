#include "server/coordinator/command_log.h"

#include <utility>

namespace annulus {

const control::v1::WorkerCommand& CommandLog::Append(control::v1::WorkerCommand command) {
  command.set_id(++last_id_);
  commands_.push_back(std::move(command));
  return commands_.back();
}

void CommandLog::Acknowledge(int64_t id) {
  if (id > last_id_) return;
  while (!commands_.empty() && commands_.front().id() <= id) commands_.pop_front();
}

}  // namespace annulus

#include "worker/agent/agent_values.h"

#include "proto/wire/convert.h"

namespace annulus {

using control::v1::WorkerCommand;
using control::v1::WorkerEvent;

GroupId GroupOf(const WorkerCommand& command) {
  switch (command.command_case()) {
    case WorkerCommand::kOpenGroup:
      return IdOf(command.open_group().generation());
    case WorkerCommand::kConnectGroup:
      return IdOf(command.connect_group().generation());
    case WorkerCommand::kRunSegment:
      return IdOf(command.run_segment().generation());
    case WorkerCommand::kCloseGroup:
      return IdOf(command.close_group().generation());
    default:
      return IdOf(command.abort_group().generation());
  }
}

WorkerEvent ShardFailedEvent(const ShardId& id, const absl::Status& why) {
  WorkerEvent event = ShardEvent(&WorkerEvent::mutable_shard_failed, id);
  *event.mutable_shard_failed()->mutable_error() = ErrorToProto(why);
  return event;
}

}  // namespace annulus

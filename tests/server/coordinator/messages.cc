#include "tests/server/coordinator/messages.h"

#include "attention/schedule/schedule.h"
#include "proto/wire/rates.h"

namespace annulus {

using control::v1::WorkerCommand;
using control::v1::WorkerEvent;

control::v1::Register SmallWorker(const std::string& slot, const std::string& incarnation) {
  control::v1::Register info;
  info.set_slot(slot);
  info.set_incarnation(incarnation);
  info.set_ticket_key(std::string(32, 'k'));
  info.set_data_endpoint("127.0.0.1:1");
  info.set_staging_limit_bytes(1 << 20);
  info.set_device_limit_bytes(1 << 20);
  WorkerRates rates;
  rates.kernels[0].rates = {{16, 6.4e-8, 0}};
  *info.mutable_rates() = RatesToProto(rates);
  info.set_schedule_version(kScheduleVersion);
  info.set_protocol_version(control::v1::PROTOCOL_VERSION_CURRENT);
  return info;
}

std::optional<WorkerEvent> AnswerTo(const WorkerCommand& command, int32_t steps) {
  WorkerEvent event;
  switch (command.command_case()) {
    case WorkerCommand::kOpenGroup:
      *event.mutable_group_opened()->mutable_generation() = command.open_group().generation();
      break;
    case WorkerCommand::kConnectGroup:
      *event.mutable_group_connected()->mutable_generation() = command.connect_group().generation();
      break;
    case WorkerCommand::kCloseGroup:
      *event.mutable_group_closed()->mutable_generation() = command.close_group().generation();
      break;
    case WorkerCommand::kAbortGroup:
      *event.mutable_group_closed()->mutable_generation() = command.abort_group().generation();
      break;
    case WorkerCommand::kPrepare:
      *event.mutable_prepared()->mutable_shard() = command.prepare().shard();
      event.mutable_prepared()->set_steps(steps);
      break;
    case WorkerCommand::kRunSegment:
      *event.mutable_segment_done()->mutable_shard() = command.run_segment().shard();
      event.mutable_segment_done()->set_segment(command.run_segment().segment());
      break;
    case WorkerCommand::kDrop:
      *event.mutable_dropped()->mutable_shard() = command.drop().shard();
      break;
    default:
      return std::nullopt;
  }
  return event;
}

v1::RunJobRequest SmallRequest(int32_t world_size, int64_t q_len, int64_t kv_len) {
  v1::RunJobRequest request;
  v1::AttentionSpec& spec = *request.mutable_spec();
  spec.set_dtype(v1::DATA_TYPE_FP32);
  spec.set_q_heads(1);
  spec.set_kv_heads(1);
  spec.set_head_dim(4);
  spec.add_sequences()->set_q_len(q_len);
  spec.mutable_sequences(0)->set_kv_len(kv_len);
  request.mutable_execution()->set_world_size(world_size);
  return request;
}

}  // namespace annulus

#include "worker/lane/shard_run.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/schedule/model/digest.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "proto/wire/convert.h"
#include "worker/agent/agent_values.h"

namespace annulus {

using control::v1::WorkerEvent;

StagedTensors ShardRun::Tensors() const {
  StagedTensors tensors;
  for (size_t i = 0; i < staged->shape().tensors.size(); ++i) {
    tensors.data.push_back(staged->tensor_data(i));
  }
  return tensors;
}

void ShardRun::ReleaseDevice() {
  executor.reset();
  memory.reset();
  reservation = Reservation();
}

absl::StatusOr<std::shared_ptr<ShardRun>> PrepareRun(const ShardWork& work, MemoryBudget* budget,
                                                     Device* device, const AttentionKernel& kernel,
                                                     ProgramMemo* memo) {
  auto run = std::make_shared<ShardRun>();
  run->id = work.id;
  run->staged = work.staged;
  ProgramRequest request = work.request;
  request.reads_staging = device->reads_staging();
  request.ends_rows = kernel.ends_rows();
  ASSIGN_OR_RETURN(run->program, memo->ProgramOf(request));
  const int64_t bytes = run->program->memory_bytes();
  ASSIGN_OR_RETURN(run->reservation, budget->Reserve(bytes));
  ASSIGN_OR_RETURN(run->memory, device->Allocate(bytes));
  return run;
}

absl::Status LaneFullError(absl::string_view what) {
  return MakeError(absl::StatusCode::kResourceExhausted,
                   absl::StrCat("too many ", what, " wait for this worker"),
                   {"QUEUE_FULL", {}, {}, absl::Seconds(1)});
}

WorkerEvent PreparedEvent(const ShardRun& run) {
  WorkerEvent event = ShardEvent(&WorkerEvent::mutable_prepared, run.id);
  control::v1::Prepared& prepared = *event.mutable_prepared();
  for (const PeerDigest& digest : PeerDigests(run.program->schedule)) {
    control::v1::PeerDigest* peer = prepared.add_digests();
    peer->set_peer(digest.peer);
    peer->set_sends(digest.sends);
    peer->set_receives(digest.receives);
  }
  prepared.set_arena_bytes(run.program->memory_bytes());
  prepared.set_steps(static_cast<int32_t>(run.program->schedule.steps.size()));
  return event;
}

WorkerEvent OutputReadyEvent(const ShardId& id, const ExecutionStats& stats,
                             const std::string& backend) {
  WorkerEvent event = ShardEvent(&WorkerEvent::mutable_output_ready, id);
  v1::ShardReport& report = *event.mutable_output_ready()->mutable_report();
  *report.mutable_running() = DurationToProto(stats.running);
  *report.mutable_exposed_communication() = DurationToProto(stats.exposed_communication);
  report.set_bytes_sent(stats.bytes_sent);
  report.set_backend(backend);
  return event;
}

}  // namespace annulus

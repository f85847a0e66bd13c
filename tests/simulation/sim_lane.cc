// The second part of SimWorker: its lane.
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/sim_worker.h"

namespace annulus {

using control::v1::WorkerCommand;
using control::v1::WorkerEvent;

namespace {

std::string OperationOf(const WorkerCommand& command) {
  const GroupId group = GroupOf(command);
  if (command.has_connect_group()) return absl::StrCat("connect ", group.first, ".", group.second);
  const control::v1::RunSegment& run = command.run_segment();
  return absl::StrCat("run ", group.first, ".", group.second, " ", run.shard().job_id(), " ",
                      run.shard().attempt(), " ", run.segment());
}

}  // namespace

v1::Error SimFailure(const char* reason) {
  v1::Error error;
  error.set_code(static_cast<int>(absl::StatusCode::kUnavailable));
  error.set_reason(reason);
  return error;
}

WorkerEvent FailedShard(const ShardId& id, const char* reason) {
  WorkerEvent fact;
  *fact.mutable_shard_failed()->mutable_shard() = KeyOf(id);
  *fact.mutable_shard_failed()->mutable_error() = SimFailure(reason);
  return fact;
}

void SimWorker::Command(const WorkerCommand& command) {
  if (command.has_open_group()) {
    WorkerEvent fact;
    *fact.mutable_group_opened()->mutable_generation() = command.open_group().generation();
    if (faults && agenda_->Chance(0.03))
      *fact.mutable_group_opened()->mutable_error() = SimFailure("NO_PORT");
    fact.mutable_group_opened()->set_bootstrap("at " + slot_);
    return Report(std::move(fact), absl::Milliseconds(10));
  }
  if (command.has_abort_group()) return AbortGroup(GroupOf(command));
  lane_.push_back(command);
  RunLane();
}

// Overtakes the lane: queued commands of the group are void, and its current command is
// interrupted.
void SimWorker::AbortGroup(const GroupId& group) {
  connected_.erase(group);
  const bool running = lane_busy_ && GroupOf(lane_.front()) == group;
  for (auto it = lane_.begin() + (lane_busy_ ? 1 : 0); it != lane_.end();) {
    it = GroupOf(*it) == group ? lane_.erase(it) : std::next(it);
  }
  if (running) {
    around_->Leave(*this);
    LaneIsDone();
  }
  WorkerEvent fact;
  *fact.mutable_group_closed()->mutable_generation() = GenerationOf(group);
  Report(std::move(fact), absl::Milliseconds(20));
}

void SimWorker::RunLane() {
  if (lane_busy_ || lane_.empty()) return;
  lane_busy_ = true;
  const WorkerCommand command = lane_.front();
  around_->LaneBegins(*this, command);
  if (command.has_close_group()) {
    Later(agenda_->Delay(absl::Milliseconds(10)), [this, command] {
      if (!lane_busy_ || lane_.front().id() != command.id()) return;
      connected_.erase(GroupOf(command));
      WorkerEvent fact;
      *fact.mutable_group_closed()->mutable_generation() = command.close_group().generation();
      LaneIsDone();
      Tell(fact);
    });
    return;
  }
  const bool runs = command.has_run_segment();
  // Remaining commands of a closed group are skipped.
  if (runs && connected_.count(GroupOf(command)) == 0) return LaneIsDone();
  operation_ = OperationOf(command);
  const auto shard = runs ? shards_.find(IdOf(command.run_segment().shard())) : shards_.end();
  if (runs && shard == shards_.end()) {
    around_->Violation("a segment of a shard that is not held");
    return LaneIsDone();
  }
  const size_t ranks = runs ? shard->second.reserve.execution().world_size()
                            : command.connect_group().bootstraps_size();
  around_->Arrive(operation_, ranks, *this);
}

void SimWorker::LaneIsDone() {
  operation_.clear();
  lane_busy_ = false;
  lane_.pop_front();
  RunLane();
}

void SimWorker::OperationDone(const std::string& operation) {
  Later(absl::ZeroDuration(), [this, operation] {
    if (!lane_busy_ || operation_ != operation) return;
    const WorkerCommand command = lane_.front();
    WorkerEvent fact;
    if (command.has_connect_group()) {
      connected_.insert(GroupOf(command));
      *fact.mutable_group_connected()->mutable_generation() = command.connect_group().generation();
    } else {
      const control::v1::RunSegment& run = command.run_segment();
      *fact.mutable_segment_done()->mutable_shard() = run.shard();
      fact.mutable_segment_done()->set_segment(run.segment());
      if (run.last()) {
        shards_[IdOf(run.shard())].device = 0;
        WorkerEvent ready;
        *ready.mutable_output_ready()->mutable_shard() = run.shard();
        // Its tasks failed earlier; it has continued for the others.
        if (faults && agenda_->Chance(0.03)) ready = FailedShard(IdOf(run.shard()), "BAD_TILE");
        Later(absl::Milliseconds(1), [this, ready] { Tell(ready); });
      }
    }
    LaneIsDone();
    Tell(fact);
  });
}

void SimWorker::OperationFailed(const std::string& operation) {
  Later(absl::ZeroDuration(), [this, operation] {
    if (!lane_busy_ || operation_ != operation) return;
    const WorkerCommand command = lane_.front();
    WorkerEvent fact;
    if (command.has_connect_group()) {
      *fact.mutable_group_connected()->mutable_generation() = command.connect_group().generation();
      *fact.mutable_group_connected()->mutable_error() = SimFailure("PEER_LOST");
    } else {
      *fact.mutable_group_broken()->mutable_generation() = command.run_segment().generation();
      *fact.mutable_group_broken()->mutable_shard() = command.run_segment().shard();
      *fact.mutable_group_broken()->mutable_cause() = SimFailure("PEER_LOST");
      connected_.erase(GroupOf(command));
    }
    LaneIsDone();
    Tell(fact);
  });
}

}  // namespace annulus

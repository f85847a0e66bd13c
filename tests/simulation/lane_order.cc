#include "tests/simulation/lane_order.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace annulus {
namespace {

using control::v1::WorkerCommand;

// The command that a lane runs, equal for every rank.
std::string LaneCommand(const WorkerCommand& command) {
  WorkerCommand same = command;
  same.clear_id();
  same.clear_ack();
  if (same.has_run_segment()) same.mutable_run_segment()->mutable_shard()->clear_rank();
  return same.SerializeAsString();
}

bool OnLane(const WorkerCommand& command) {
  return command.has_connect_group() || command.has_run_segment() || command.has_close_group();
}

}  // namespace

LaneOrder::Queues LaneOrder::TakeNew(const CoordinatorTables& tables) {
  Queues queues;
  for (const auto& [number, worker] : tables.workers.all()) {
    int64_t& seen = seen_[{tables.term, number}];
    for (const Command& command : worker.log.unacknowledged()) {
      if (command.message.id() <= seen) continue;
      seen = command.message.id();
      if (OnLane(command.message)) queues[number].push_back(LaneCommand(command.message));
    }
  }
  return queues;
}

absl::Status LaneOrder::Issue(const CoordinatorTables& tables) {
  Queues queues = TakeNew(tables);
  const auto comes_first = [&](const std::string& command) {
    return std::all_of(queues.begin(), queues.end(), [&](const auto& of_worker) {
      const std::deque<std::string>& queue = of_worker.second;
      return std::find(queue.begin() + 1, queue.end(), command) == queue.end();
    });
  };
  while (!queues.empty()) {
    const auto next = std::find_if(queues.begin(), queues.end(), [&](const auto& of_worker) {
      return comes_first(of_worker.second.front());
    });
    if (next == queues.end()) {
      return absl::InternalError("invariant 13: workers receive commands in no one order");
    }
    const std::string command = next->second.front();
    Add(command);
    for (auto queue = queues.begin(); queue != queues.end();) {
      if (queue->second.front() == command) queue->second.pop_front();
      queue = queue->second.empty() ? queues.erase(queue) : std::next(queue);
    }
  }
  return absl::OkStatus();
}

absl::Status LaneOrder::Begin(const std::string& slot, const WorkerCommand& command) {
  const auto issued = issued_.find(LaneCommand(command));
  if (issued == issued_.end()) {
    return absl::InternalError("invariant 13: a lane runs what was not issued");
  }
  int64_t& position = lane_position_[{slot, command.term()}];
  if (issued->second < position) {
    return absl::InternalError(
        absl::StrCat("invariant 13: the lane of ", slot, " left the global order"));
  }
  position = issued->second;
  return absl::OkStatus();
}

}  // namespace annulus

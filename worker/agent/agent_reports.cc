// The second part of AgentState: reports of the data plane and the lanes, fencing, and the exit.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "proto/wire/convert.h"
#include "worker/agent/agent_state.h"

namespace annulus {

using control::v1::WorkerCommand;
using control::v1::WorkerEvent;

void AgentState::Tell(WorkerEvent fact) {
  if (auto event = link_.Number(std::move(fact)); event.has_value()) Do(Send{*std::move(event)});
}

AgentState::Shard* AgentState::Open(const control::v1::ShardKey& key) {
  const auto shard = shards_.find(IdOf(key));
  if (shard == shards_.end() || shard->second.stage >= Stage::kFreeing) return nullptr;
  return &shard->second;
}

void AgentState::TellLater(const control::v1::ShardKey& key, absl::Time now) {
  unreported_.emplace_back(now + options_.patience, IdOf(key));
}

bool AgentState::HasUntold(const ShardId& id) const {
  const auto shard = shards_.find(id);
  if (shard == shards_.end()) return false;
  const Stage stage = shard->second.stage;
  return stage == Stage::kComplete ||
         (stage == Stage::kReady && shard->second.untold_report.has_value());
}

void AgentState::TellNow(const ShardId& id, absl::Time now) {
  Shard& shard = shards_.at(id);
  if (shard.stage == Stage::kComplete) {
    return Tell(ShardEvent(&WorkerEvent::mutable_shard_complete, id));
  }
  WorkerEvent fact = ShardEvent(&WorkerEvent::mutable_output_ready, id);
  *fact.mutable_output_ready()->mutable_report() = *shard.untold_report;
  *fact.mutable_output_ready()->mutable_age() = DurationToProto(now - shard.ready);
  shard.untold_report.reset();
  Tell(std::move(fact));
}

void AgentState::TellUntold(absl::Time now) {
  while (!unreported_.empty()) {
    const auto& [due, id] = unreported_.front();
    if (HasUntold(id)) {
      if (now < due) return;
      TellNow(id, now);
    }
    unreported_.pop_front();
  }
}

void AgentState::On(const Reported& event, absl::Time now) {
  switch (event.fact.event_case()) {
    case WorkerEvent::kGroupOpened:
    case WorkerEvent::kGroupConnected:
    case WorkerEvent::kGroupBroken:
    case WorkerEvent::kGroupClosed:
      return ReportGroup(event.fact);
    default:
      return ReportShard(event.fact, now);
  }
}

void AgentState::ReportShard(const WorkerEvent& fact, absl::Time now) {
  // Advances a shard to `next`. nullptr if it is gone or has been there.
  auto advance = [this](const control::v1::ShardKey& key, Stage next) -> Shard* {
    Shard* shard = Open(key);
    if (shard == nullptr || shard->stage >= next) return nullptr;
    shard->stage = next;
    return shard;
  };
  Shard* shard = nullptr;
  switch (fact.event_case()) {
    case WorkerEvent::kShardComplete:
      shard = advance(fact.shard_complete().shard(), Stage::kComplete);
      if (shard != nullptr && shard->solo) return TellLater(fact.shard_complete().shard(), now);
      break;
    case WorkerEvent::kPrepared:
      shard = advance(fact.prepared().shard(), Stage::kPrepared);
      break;
    case WorkerEvent::kOutputReady:
      shard = advance(fact.output_ready().shard(), Stage::kReady);
      if (shard != nullptr && shard->solo) {
        shard->untold_report = fact.output_ready().report();
        shard->ready = now;
        return TellLater(fact.output_ready().shard(), now);
      }
      break;
    case WorkerEvent::kOutputDrained:
      shard = advance(fact.output_drained().shard(), Stage::kDrained);
      if (shard != nullptr && shard->keep && shard->untold_report.has_value()) {
        TellNow(IdOf(fact.output_drained().shard()), now);
      } else if (shard != nullptr && shard->solo && !shard->keep) {
        // Reported when the shard is freed.
        shard->stage = Stage::kFreeing;
        return Do(CloseShard{IdOf(fact.output_drained().shard()),
                             JobEndedError("its outputs are delivered")});
      }
      break;
    case WorkerEvent::kSegmentDone:
      shard = Open(fact.segment_done().shard());
      break;
    case WorkerEvent::kShardFailed:
      shard = Open(fact.shard_failed().shard());
      break;
    case WorkerEvent::kShardAbandoned:
      shard = Open(fact.shard_abandoned().shard());
      // The delayed report goes first: an abandoned download implies that there are outputs.
      if (shard != nullptr && shard->untold_report.has_value()) {
        TellNow(IdOf(fact.shard_abandoned().shard()), now);
      }
      break;
    default:
      break;
  }
  if (shard != nullptr) Tell(fact);
}

void AgentState::ReportGroup(const WorkerEvent& fact) {
  auto open_group = [this](const control::v1::Generation& generation) -> GroupStage* {
    const auto group = groups_.find(IdOf(generation));
    return group == groups_.end() || group->second == GroupStage::kClosing ? nullptr
                                                                           : &group->second;
  };
  GroupStage* stage = nullptr;
  if (fact.has_group_opened()) {
    stage = open_group(fact.group_opened().generation());
    if (stage != nullptr) *stage = GroupStage::kOpened;
  } else if (fact.has_group_connected()) {
    stage = open_group(fact.group_connected().generation());
    if (stage != nullptr) {
      *stage = fact.group_connected().has_error() ? GroupStage::kBroken : GroupStage::kConnected;
    }
  } else if (fact.has_group_broken()) {
    stage = open_group(fact.group_broken().generation());
    if (stage != nullptr) *stage = GroupStage::kBroken;
  } else if (groups_.erase(IdOf(fact.group_closed().generation())) > 0 && !fenced_) {
    return Tell(fact);
  }
  if (stage != nullptr) Tell(fact);
}

void AgentState::On(const ShardFreed& event, absl::Time now) {
  const auto shard = shards_.find(event.id);
  if (shard == shards_.end()) return;
  const Shard freed = std::move(shard->second);
  shards_.erase(shard);
  if (fenced_) return;
  if (freed.stage != Stage::kFreeing) {
    return Tell(ShardEvent(&WorkerEvent::mutable_dropped, event.id));
  }
  WorkerEvent fact = ShardEvent(&WorkerEvent::mutable_output_drained, event.id);
  if (freed.untold_report.has_value()) {
    *fact.mutable_output_drained()->mutable_report() = *freed.untold_report;
    *fact.mutable_output_drained()->mutable_age() = DurationToProto(now - freed.ready);
  }
  Tell(std::move(fact));
}

void AgentState::CloseAll(const absl::Status& why) {
  for (auto& [id, shard] : shards_) {
    const bool closing = shard.stage >= Stage::kFreeing;
    shard.stage = Stage::kClosing;
    if (!closing) Do(CloseShard{id, why});
  }
  for (auto& [id, stage] : groups_) {
    stage = GroupStage::kClosing;
    WorkerCommand command;
    *command.mutable_abort_group()->mutable_generation() = GenerationOf(id);
    Do(CommandGroup{std::move(command)});
  }
}

// Other workers may take the jobs, or this one once it is back.
constexpr absl::Duration kRetryAfterFence = absl::Seconds(1);

void AgentState::Fence(absl::Time now, const std::string& why) {
  if (fenced_) return;
  fenced_ = true;
  GiveStreamUp();
  Do(SetReady{false});
  link_.Reset(now);
  CloseAll(MakeError(absl::StatusCode::kAborted, absl::StrCat("the worker dropped all jobs: ", why),
                     {"JOB_ENDED", {{"cause", why}}, {}, kRetryAfterFence}));
}

void AgentState::LeaveIfDone(absl::Time now) {
  if (!leaving_ || exited_) return;
  // A connected coordinator sends Drain when it no longer counts on this worker, which may be a
  // member of a group in use without having a shard. Without a connection there is nothing to wait
  // for.
  const bool alone = now >= alone_at_ && groups_.empty();
  const bool released = drain_received_ || !link_.up() || alone;
  const bool done = Idle() && released;
  if (!done && now < leave_at_) return;
  if (!Idle()) CloseAll(LeavingError());
  exited_ = true;
  Do(Exit{0, done ? "drained"
                  : absl::StrCat("the drain took too long: ", shards_.size(), " shards and ",
                                 groups_.size(), " groups were ended early")});
}

}  // namespace annulus

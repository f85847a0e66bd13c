#include "worker/agent/agent_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "proto/wire/convert.h"

namespace annulus {

using control::v1::WorkerCommand;
using control::v1::WorkerEvent;

namespace {

absl::Status NotHeld(const ShardId& id) {
  return MakeError(
      absl::StatusCode::kNotFound,
      absl::StrCat("this worker holds no rank ", id.rank, " of attempt ", id.attempt),
      {"SHARD_NOT_FOUND",
       {{"job", id.job_id}, {"attempt", absl::StrCat(id.attempt)}, {"rank", absl::StrCat(id.rank)}},
       {},
       {}});
}

}  // namespace

AgentState::AgentState(Options options) : options_(std::move(options)), link_(options_.link) {}

AgentActions AgentState::Start(absl::Time now) {
  actions_.clear();
  identity_ = options_.new_identity();
  Do(TakeIdentity{identity_});
  RunLink(now);
  return std::exchange(actions_, {});
}

AgentActions AgentState::Handle(const AgentEvent& event, absl::Time now) {
  actions_.clear();
  if (exited_) return {};
  // Checked first: a process that was stopped finds both old commands and an expired lease when it
  // resumes.
  if (link_.LeaseIsOver(now)) Fence(now, "its lease ran out");
  std::visit([&](const auto& typed) { On(typed, now); }, event);
  TellUntold(now);
  RunLink(now);
  LeaveIfDone(now);
  return std::exchange(actions_, {});
}

absl::Time AgentState::NextWake() const {
  if (exited_) return absl::InfiniteFuture();
  absl::Time wake = leave_at_;
  // A fenced worker connects again when all is freed; that is an event.
  if (!fenced_) wake = std::min(wake, link_.NextWake());
  if (!unreported_.empty()) wake = std::min(wake, unreported_.front().first);
  // An idle worker also wakes at the end of its wait for Drain.
  if (leaving_ && Idle() && groups_.empty()) wake = std::min(wake, alone_at_);
  return wake;
}

void AgentState::On(const CommandArrived& event, absl::Time now) {
  if (event.stream != stream_) return;
  switch (link_.Receive(event.command, now)) {
    case LinkState::Verdict::kIgnore:
      return;
    case LinkState::Verdict::kObey:
      return Execute(event.command);
    case LinkState::Verdict::kWelcome:
      return Welcome();
    case LinkState::Verdict::kBroken:
      GiveStreamUp();
      Do(SetReady{false});
      return link_.Closed(now);
  }
}

void AgentState::On(const LinkClosed& event, absl::Time now) {
  if (fenced_ || event.stream != stream_) return;
  link_.Closed(now);
  Do(SetReady{false});
  if (event.status.code() == absl::StatusCode::kAborted) {
    Fence(now, absl::StrCat("the coordinator considers it lost: ", event.status.message()));
  } else if (event.status.code() == absl::StatusCode::kFailedPrecondition ||
             event.status.code() == absl::StatusCode::kInvalidArgument) {
    exited_ = true;
    Do(Exit{1, absl::StrCat("the coordinator refuses this worker: ", event.status.message())});
  }
}

void AgentState::On(const Terminated& event, absl::Time now) {
  const bool again = std::exchange(asked_to_leave_, asked_to_leave_ || event.asked);
  if (leave_at_ != absl::InfiniteFuture()) {
    if (again && event.asked) leave_at_ = now;
    return;
  }
  leaving_ = true;
  leave_at_ = now + options_.drain_timeout;
  alone_at_ =
      now + (link_.up() ? std::min(link_.lease(), options_.drain_timeout) : absl::ZeroDuration());
  Do(SetReady{false});
  WorkerEvent leaving;
  leaving.mutable_leaving();
  if (link_.up()) Tell(std::move(leaving));
}

void AgentState::Welcome() {
  for (WorkerEvent& event : link_.Pending()) Do(Send{std::move(event)});
  if (!leaving_) return Do(SetReady{true});
  WorkerEvent leaving;
  leaving.mutable_leaving();
  Tell(std::move(leaving));
}

void AgentState::RunLink(absl::Time now) {
  if (link_.ShouldGiveUp(now)) {
    GiveStreamUp();
    link_.Closed(now);
  }
  if (fenced_ && shards_.empty() && groups_.empty()) {
    fenced_ = false;
    identity_ = options_.new_identity();
    Do(TakeIdentity{identity_});
  }
  if (!fenced_ && !exited_ && link_.ShouldConnect(now)) {
    Do(Connect{++stream_});
    link_.Connecting(now);
    SendRegister();
  }
  if (auto beat = link_.Beat(now); beat.has_value()) Do(Send{*std::move(beat)});
}

// Events of the old stream that are still queued are now stale.
void AgentState::GiveStreamUp() {
  ++stream_;
  Do(Disconnect{});
}

void AgentState::SendRegister() {
  WorkerEvent event;
  control::v1::Register& self = *event.mutable_register_();
  self = options_.self();
  self.set_incarnation(identity_.incarnation);
  self.set_ticket_key(identity_.ticket_key);
  self.set_highest_term(link_.term());
  for (const auto& [id, shard] : shards_) {
    if (shard.stage != Stage::kClosing) *self.add_resident_shards() = KeyOf(id);
  }
  for (const auto& [id, stage] : groups_) {
    if (stage != GroupStage::kClosing) *self.add_formed_groups() = GenerationOf(id);
  }
  Do(Send{link_.Stamp(std::move(event))});
}

void AgentState::Execute(const WorkerCommand& command) {
  switch (command.command_case()) {
    case WorkerCommand::kReserve:
      return Reserve(command.reserve());
    case WorkerCommand::kPrepare:
      return Prepare(IdOf(command.prepare().shard()));
    case WorkerCommand::kDrop:
      return Drop(IdOf(command.drop().shard()));
    case WorkerCommand::kDrain:
      leaving_ = true;
      drain_received_ = true;
      return Do(SetReady{false});
    case WorkerCommand::kOpenGroup:
    case WorkerCommand::kConnectGroup:
    case WorkerCommand::kRunSegment:
    case WorkerCommand::kCloseGroup:
    case WorkerCommand::kAbortGroup:
      return ObeyGroup(command);
    case WorkerCommand::kWelcome:
    case WorkerCommand::kBeatAnswer:
    case WorkerCommand::COMMAND_NOT_SET:
      // LinkState has handled these, or a newer coordinator sent an unknown command: counted and
      // ignored.
      return;
  }
}

void AgentState::Reserve(const control::v1::Reserve& reserve) {
  const bool added = shards_
                         .emplace(IdOf(reserve.shard()),
                                  Shard{Stage::kUploading, reserve.solo(), reserve.keep(), {}, {}})
                         .second;
  if (added) Do(OpenShard{reserve});
}

void AgentState::Prepare(const ShardId& id) {
  const auto shard = shards_.find(id);
  if (shard == shards_.end() || shard->second.stage != Stage::kComplete) {
    return Tell(ShardFailedEvent(id, NotHeld(id)));
  }
  shard->second.stage = Stage::kPreparing;
  Do(PrepareShard{id});
}

void AgentState::Drop(const ShardId& id) {
  const auto shard = shards_.find(id);
  if (shard == shards_.end()) return Tell(ShardEvent(&WorkerEvent::mutable_dropped, id));
  const bool closing = shard->second.stage >= Stage::kFreeing;
  shard->second.stage = Stage::kClosing;
  if (!closing) Do(CloseShard{id, JobEndedError("the job has ended")});
}

void AgentState::ObeyGroup(const WorkerCommand& command) {
  const GroupId id = GroupOf(command);
  if (command.has_close_group() || command.has_abort_group()) return EndGroup(id, command);
  if (command.has_open_group()) {
    if (!groups_.emplace(id, GroupStage::kOpening).second) return;
  } else if (command.has_connect_group()) {
    const auto group = groups_.find(id);
    if (group != groups_.end() && group->second == GroupStage::kOpened) {
      group->second = GroupStage::kConnecting;
    }
  }
  Do(CommandGroup{command});
}

void AgentState::EndGroup(const GroupId& id, const WorkerCommand& command) {
  const auto group = groups_.find(id);
  if (group == groups_.end()) {
    WorkerEvent fact;
    *fact.mutable_group_closed()->mutable_generation() = GenerationOf(id);
    return Tell(std::move(fact));
  }
  // AbortGroup may follow a CloseGroup that hangs because of a lost peer.
  if (group->second == GroupStage::kClosing && !command.has_abort_group()) return;
  group->second = GroupStage::kClosing;
  Do(CommandGroup{command});
}

}  // namespace annulus

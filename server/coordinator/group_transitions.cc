#include "server/coordinator/group_transitions.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/wire/convert.h"
#include "server/coordinator/answer_time.h"
#include "server/coordinator/run_transitions.h"
#include "server/coordinator/state/errors.h"

namespace annulus {
namespace {

using State = GroupRecord::State;
using control::v1::WorkerCommand;

TimerKey TimerOf(int64_t group) { return {TimerKey::Kind::kGroup, group}; }
constexpr TimerKey kFormationTimer = {TimerKey::Kind::kFormation, 0};

// Every live member must answer the command of the new state by the deadline.
void Enter(CoordinatorTables& tables, GroupRecord& group, State state, absl::Duration timeout) {
  group.state = state;
  tables.advance_again = true;  // Runs may have waited for it to connect.
  group.awaited.clear();
  for (int64_t member : group.members) {
    if (tables.workers.Find(member) != nullptr) group.awaited.insert(member);
  }
  tables.timers.Set(TimerOf(group.number), tables.now + timeout);
}

void Open(CoordinatorTables& tables, const std::vector<int64_t>& members) {
  GroupRecord& group = tables.groups.Add(members);
  for (int64_t member : members) group.slots.push_back(tables.workers.Find(member)->slot());
  Enter(tables, group, State::kOpening, tables.options.formation_timeout);
  for (size_t rank = 0; rank < members.size(); ++rank) {
    WorkerCommand command;
    control::v1::OpenGroup& open = *command.mutable_open_group();
    *open.mutable_generation() = tables.GenerationOf(group.number);
    open.set_rank(static_cast<int32_t>(rank));
    open.set_size(static_cast<int32_t>(members.size()));
    tables.Send(members[rank], std::move(command));
  }
}

void Connect(CoordinatorTables& tables, GroupRecord& group) {
  Enter(tables, group, State::kConnecting, tables.options.formation_timeout);
  for (int64_t member : group.members) {
    WorkerCommand command;
    control::v1::ConnectGroup& connect = *command.mutable_connect_group();
    *connect.mutable_generation() = tables.GenerationOf(group.number);
    for (const std::string& bootstrap : group.bootstraps) connect.add_bootstraps(bootstrap);
    *connect.mutable_timeout() = DurationToProto(tables.options.formation_timeout);
    tables.Send(member, std::move(command));
  }
}

bool InUse(const CoordinatorTables& tables, int64_t group) {
  const auto& runs = tables.runs.all();
  return std::any_of(runs.begin(), runs.end(), [=](const auto& entry) {
    return entry.second.group == group && entry.second.needs_group();
  });
}

void Close(CoordinatorTables& tables, GroupRecord& group) {
  Enter(tables, group, State::kClosing, AnswerTime(tables, group.members));
  for (int64_t member : group.members) {
    WorkerCommand command;
    *command.mutable_close_group()->mutable_generation() = tables.GenerationOf(group.number);
    tables.Send(member, std::move(command));
  }
}

void EraseIfOver(CoordinatorTables& tables, int64_t number) {
  GroupRecord* group = tables.groups.Find(number);
  if (group == nullptr || group->live() || !group->awaited.empty()) return;
  tables.timers.Cancel(TimerOf(number));
  tables.groups.Erase(number);
  tables.family_dirty = true;
}

absl::Status CauseOf(const v1::Error& error) {
  const absl::Status cause = ErrorFromProto(error);
  return cause.ok() ? absl::InternalError("a worker reported a broken group without a cause")
                    : cause;
}

void NoteFailure(CoordinatorTables& tables, const GroupRecord& group, const absl::Status& cause) {
  GroupTable::Pause& pause = tables.groups.pauses()[group.members];
  absl::Duration wait = tables.options.formation_delay;
  for (int32_t i = 0; i < pause.failures && wait < tables.options.max_formation_pause; ++i)
    wait *= 2;
  ++pause.failures;
  pause.until = tables.now + std::min(wait, tables.options.max_formation_pause);
  if (group.state == State::kReady) return;
  // Jobs that were planned for this group may have other places.
  if (pause.formation.ok()) ++tables.membership_epoch;
  pause.formation = cause;
}

void FailGroup(CoordinatorTables& tables, const GroupRecord& group, const absl::Status& cause) {
  NoteFailure(tables, group, cause);
  AbortGroup(tables, group.number, cause);
}

// Members of a group that aborts. The next group waits, because their memory is not free yet.
std::set<int64_t> BusyWorkers(const CoordinatorTables& tables) {
  std::set<int64_t> busy;
  for (const auto& [number, group] : tables.groups.all()) {
    if (group.state == State::kAborting) busy.insert(group.awaited.begin(), group.awaited.end());
  }
  return busy;
}

bool AnyIn(const std::vector<int64_t>& members, const std::set<int64_t>& set) {
  return std::any_of(members.begin(), members.end(), [&](int64_t m) { return set.count(m) != 0; });
}

// A rank that comes late, because it runs segments of other groups, would keep the others waiting
// for longer than they do.
void ConnectOpened(CoordinatorTables& tables) {
  auto& groups = tables.groups.all();
  const auto waits = [](const auto& entry) { return entry.second.opened(); };
  if (std::none_of(groups.begin(), groups.end(), waits)) return;
  std::set<int64_t> busy = BusyWorkers(tables);
  for (const auto& [number, run] : tables.runs.all()) {
    const bool runs =
        run.state == RunRecord::State::kRunning || run.state == RunRecord::State::kHalting;
    if (!runs || run.issued == run.SegmentsDone()) continue;
    for (const RunRank& rank : run.ranks) busy.insert(rank.worker);
  }
  for (auto& [number, group] : groups) {
    if (group.opened() && !AnyIn(group.members, busy)) Connect(tables, group);
  }
}

void CloseUnwanted(CoordinatorTables& tables, const std::set<std::vector<int64_t>>& family) {
  std::vector<int64_t> half_formed;
  for (auto& [number, group] : tables.groups.all()) {
    group.wanted = family.count(group.members) != 0;
    if (group.wanted || !group.live()) continue;
    if (group.state != State::kReady) {
      half_formed.push_back(number);
    } else if (!InUse(tables, number)) {
      Close(tables, group);
    }
  }
  for (int64_t number : half_formed) {
    AbortGroup(tables, number, absl::CancelledError("the membership has changed"));
  }
}

absl::Time OpenMissing(CoordinatorTables& tables, const std::vector<std::vector<int64_t>>& family) {
  std::set<std::vector<int64_t>> present;
  for (const auto& [number, group] : tables.groups.all()) {
    if (group.live()) present.insert(group.members);
  }
  const std::set<int64_t> busy = BusyWorkers(tables);
  absl::Time next = absl::InfiniteFuture();
  for (const std::vector<int64_t>& members : family) {
    if (present.count(members) != 0 || AnyIn(members, busy)) continue;
    auto pause = tables.groups.pauses().find(members);
    if (pause != tables.groups.pauses().end() && tables.now < pause->second.until) {
      next = std::min(next, pause->second.until);
    } else {
      Open(tables, members);
    }
  }
  return next;
}

void FollowFamily(CoordinatorTables& tables) {
  const std::vector<std::vector<int64_t>> family = tables.Family();
  const std::set<std::vector<int64_t>> wanted(family.begin(), family.end());
  CloseUnwanted(tables, wanted);
  auto& pauses = tables.groups.pauses();
  for (auto it = pauses.begin(); it != pauses.end();) {
    it = wanted.count(it->first) == 0 ? pauses.erase(it) : std::next(it);
  }
  const absl::Time next = OpenMissing(tables, family);
  if (next != absl::InfiniteFuture()) tables.timers.Set(kFormationTimer, next);
  tables.place_again = true;
}

void OnOpened(CoordinatorTables& tables, GroupRecord& group, int64_t worker,
              const control::v1::GroupOpened& opened) {
  if (group.state != State::kOpening || group.awaited.count(worker) == 0) return;
  if (opened.has_error()) return FailGroup(tables, group, CauseOf(opened.error()));
  group.bootstraps[group.RankOf(worker)] = opened.bootstrap();
  group.awaited.erase(worker);
  if (!group.opened()) return;
  tables.timers.Cancel(TimerOf(group.number));  // ConnectOpened continues.
  group.idle_at = tables.now + LongestOf(LaneTimes(tables), group.members);
}

void OnConnected(CoordinatorTables& tables, GroupRecord& group, int64_t worker,
                 const control::v1::GroupConnected& connected) {
  if (group.state != State::kConnecting || group.awaited.count(worker) == 0) return;
  if (connected.has_error()) return FailGroup(tables, group, CauseOf(connected.error()));
  group.awaited.erase(worker);
  if (!group.awaited.empty()) return;
  group.state = State::kReady;
  group.bootstraps.clear();
  tables.timers.Cancel(TimerOf(group.number));
  tables.groups.pauses().erase(group.members);
  tables.place_again = tables.advance_again = true;
  tables.Log(LogLevel::kInfo, kNoJob,
             absl::StrCat("group ", group.number, " of ", group.members.size(), " is ready"));
}

// Logs where the group broke and which rank is suspected: of all consequences of a loss, this
// points at the cause.
void LogBroken(CoordinatorTables& tables, const GroupRecord& group, int64_t worker,
               const control::v1::GroupBroken& broken) {
  auto name = [&](int32_t rank) {
    return absl::StrCat("rank ", rank, " (", group.slots[rank], ")");
  };
  const std::string& job = broken.shard().job_id();
  std::string text = absl::StrCat("group ", group.number, " broke at ", name(group.RankOf(worker)));
  if (!job.empty())
    absl::StrAppend(&text, ", segment ", broken.segment(), ", step ", broken.step());
  const int32_t suspect = broken.suspect_rank();
  if (suspect >= 0 && suspect < static_cast<int32_t>(group.slots.size())) {
    absl::StrAppend(&text, ", suspected rank: ", name(suspect));
  }
  tables.Log(LogLevel::kWarning, job.empty() ? absl::string_view(kNoJob) : job,
             absl::StrCat(text, ": ", broken.cause().reason(), ": ", broken.cause().message()));
}

void OnBroken(CoordinatorTables& tables, GroupRecord& group, int64_t worker,
              const control::v1::GroupBroken& broken) {
  if (!group.live()) return;
  LogBroken(tables, group, worker, broken);
  FailGroup(tables, group, CauseOf(broken.cause()));
}

int64_t NumberOf(const CoordinatorTables& tables, const control::v1::Generation& generation) {
  return generation.term() == tables.term ? generation.number() : 0;
}

}  // namespace

void MembershipChanged(CoordinatorTables& tables) {
  ++tables.membership_epoch;
  tables.place_again = true;
  tables.timers.Set(kFormationTimer, tables.now + tables.options.formation_delay);
}

void ReconcileGroups(CoordinatorTables& tables) {
  if (std::exchange(tables.family_dirty, false)) FollowFamily(tables);
  ConnectOpened(tables);
}

void AbortGroup(CoordinatorTables& tables, int64_t number, const absl::Status& cause) {
  GroupRecord* group = tables.groups.Find(number);
  if (group == nullptr || group->state == State::kAborting) return;
  // A group that never formed and that is no longer wanted is no loss.
  const bool forming = group->state == State::kOpening || group->state == State::kConnecting;
  tables.Log(forming && !group->wanted ? LogLevel::kInfo : LogLevel::kWarning, kNoJob,
             absl::StrCat("group ", number, " is aborted: ", cause.message()));
  Enter(tables, *group, State::kAborting, AnswerTime(tables, group->members));
  for (int64_t member : group->members) {
    WorkerCommand command;
    *command.mutable_abort_group()->mutable_generation() = tables.GenerationOf(number);
    tables.Send(member, std::move(command));
  }
  std::vector<int64_t> lost;
  for (const auto& [run, record] : tables.runs.all()) {
    if (record.group == number && record.needs_group()) lost.push_back(run);
  }
  for (int64_t run : lost) LoseRun(tables, run, cause);
  tables.family_dirty = true;
  EraseIfOver(tables, number);
}

void LeaveGroups(CoordinatorTables& tables, int64_t worker, const absl::Status& cause) {
  std::vector<int64_t> broken, awaited;
  for (const auto& [number, group] : tables.groups.all()) {
    if (group.RankOf(worker) < 0) continue;
    (group.live() ? broken : awaited).push_back(number);
  }
  for (int64_t number : broken) AbortGroup(tables, number, cause);
  for (int64_t number : awaited) {
    tables.groups.Find(number)->awaited.erase(worker);
    EraseIfOver(tables, number);
  }
}

void OnGroupEvent(CoordinatorTables& tables, int64_t worker,
                  const control::v1::WorkerEvent& event) {
  using Case = control::v1::WorkerEvent;
  const control::v1::Generation& generation =
      event.event_case() == Case::kGroupOpened      ? event.group_opened().generation()
      : event.event_case() == Case::kGroupConnected ? event.group_connected().generation()
      : event.event_case() == Case::kGroupBroken    ? event.group_broken().generation()
                                                    : event.group_closed().generation();
  GroupRecord* group = tables.groups.Find(NumberOf(tables, generation));
  if (group == nullptr || group->RankOf(worker) < 0) return;
  switch (event.event_case()) {
    case Case::kGroupOpened:
      return OnOpened(tables, *group, worker, event.group_opened());
    case Case::kGroupConnected:
      return OnConnected(tables, *group, worker, event.group_connected());
    case Case::kGroupBroken:
      return OnBroken(tables, *group, worker, event.group_broken());
    default:
      if (!group->live()) group->awaited.erase(worker);
      return EraseIfOver(tables, group->number);
  }
}

void OnGroupTimer(CoordinatorTables& tables, int64_t number) {
  GroupRecord* group = tables.groups.Find(number);
  if (group == nullptr || group->state == State::kReady) return;
  if (group->live()) {
    return FailGroup(tables, *group,
                     absl::DeadlineExceededError(absl::StrCat("the group was not formed in time (",
                                                              GroupStateName(group->state), ")")));
  }
  for (int64_t worker : group->awaited) {
    tables.doomed_workers.emplace_back(worker,
                                       "it did not answer AbortGroup or CloseGroup in time");
  }
}

}  // namespace annulus

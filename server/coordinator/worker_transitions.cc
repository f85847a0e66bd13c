#include "server/coordinator/worker_transitions.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/wire/convert.h"
#include "proto/wire/rates.h"
#include "server/coordinator/group_transitions.h"
#include "server/coordinator/kept_state.h"
#include "server/coordinator/registration.h"
#include "server/coordinator/run_completion.h"
#include "server/coordinator/run_transitions.h"
#include "server/coordinator/state/errors.h"

namespace annulus {
namespace {

using control::v1::WorkerCommand;
using control::v1::WorkerEvent;

constexpr size_t kRememberedLost = 1024;

TimerKey TimerOf(int64_t worker) { return {TimerKey::Kind::kWorker, worker}; }

// Half an interval after the last beat that may be missed: a late beat is not a missed one.
absl::Time SuspectAt(const Core& core, const WorkerRecord& worker) {
  return worker.last_heard + core.options.beat_interval * (core.options.missed_beats + 0.5);
}

void ArmTimer(Core& core, const WorkerRecord& worker) {
  const absl::Time lost = worker.last_heard + core.options.lease;
  core.timers.Set(TimerOf(worker.number),
                  worker.suspect ? lost : std::min(lost, SuspectAt(core, worker)));
}

// Commands outside the numbering.
void SendUnnumbered(Core& core, const WorkerRecord& worker, WorkerCommand command) {
  command.set_term(core.term);
  command.set_ack(worker.events_received);
  core.Emit(action::SendCommand{worker.connection, {std::move(command), nullptr}});
}

void Welcome(Core& core, const WorkerRecord& worker) {
  WorkerCommand command;
  *command.mutable_welcome()->mutable_lease() = DurationToProto(core.options.lease);
  *command.mutable_welcome()->mutable_beat_interval() = DurationToProto(core.options.beat_interval);
  SendUnnumbered(core, worker, std::move(command));
}

void SetSuspect(Core& core, WorkerRecord& worker, bool suspect) {
  if (worker.suspect == suspect) return;
  worker.suspect = suspect;
  core.place_again = true;
  if (!suspect) ++core.membership_epoch;  // Plans are made for those that are ready.
  core.Log(LogLevel::kInfo, kNoJob,
           absl::StrCat("worker ", worker.slot(), suspect ? " is suspect" : " is back"));
}

// An earlier term's shards and groups: freed before the worker gets work.
void ClearLeftovers(Core& core, WorkerRecord& worker) {
  for (const control::v1::ShardKey& shard : worker.info.resident_shards()) {
    WorkerCommand command;
    *command.mutable_drop()->mutable_shard() = shard;
    worker.leftovers.insert(shard.SerializeAsString());
    core.Send(worker.number, std::move(command));
  }
  for (const control::v1::Generation& generation : worker.info.formed_groups()) {
    WorkerCommand command;
    *command.mutable_abort_group()->mutable_generation() = generation;
    worker.leftovers.insert(generation.SerializeAsString());
    core.Send(worker.number, std::move(command));
  }
}

void Accept(Core& core, int64_t connection, const WorkerEvent& event) {
  WorkerRecord& worker =
      core.workers.Add({core.options.max_unacknowledged, core.options.max_unacknowledged_bytes});
  worker.info = event.register_();
  worker.rates = *RatesFromProto(worker.info.rates());  // CheckRegister has seen them.
  worker.connection = connection;
  worker.last_heard = core.now;
  if (worker.info.highest_term() > 0 && worker.info.highest_term() < core.term &&
      core.now < core.started + core.options.lease && !core.restarted) {
    core.restarted = true;
    core.timers.Set({TimerKey::Kind::kReadiness, 0}, core.started + core.options.lease);
  }
  core.ledger.AddWorker(worker.number,
                        {worker.info.staging_limit_bytes(), worker.info.device_limit_bytes(),
                         KeptLimit(core, worker.info.staging_limit_bytes())});
  Welcome(core, worker);
  ClearLeftovers(core, worker);
  ArmTimer(core, worker);
  core.Log(LogLevel::kInfo, kNoJob,
           absl::StrCat("worker ", worker.slot(), " registered: version ", worker.info.version(),
                        ", ", worker.info.backend(), ", ", worker.info.data_endpoint()));
  MembershipChanged(core);
}

void Reconnect(Core& core, WorkerRecord& worker, int64_t connection, const WorkerEvent& event) {
  if (worker.connection != 0) {
    core.Emit(
        action::CloseConnection{worker.connection, ProtocolError("a newer stream took over")});
  }
  worker.connection = connection;
  worker.last_heard = core.now;
  if (event.term() == core.term) worker.log.Acknowledge(event.ack());
  Welcome(core, worker);
  for (Command command : worker.log.unacknowledged()) {
    command.message.set_ack(worker.events_received);
    core.Emit(action::SendCommand{connection, std::move(command)});
  }
  SetSuspect(core, worker, false);
  ArmTimer(core, worker);
}

// A worker knows a higher term: this one must be passed, and all that was said in it is void.
void RaiseTerm(Core& core, int64_t above) {
  core.Log(LogLevel::kWarning, kNoJob,
           absl::StrCat("a worker knows term ", above, ": begins a new one"));
  std::vector<int64_t> numbers;
  for (const auto& [number, worker] : core.workers.all()) numbers.push_back(number);
  for (int64_t number : numbers) {
    LoseWorker(core, number, "a higher term has begun", StaleTermError(above + 1));
  }
  core.term = above + 1;
  core.lost_incarnations.clear();
}

void OnRegister(Core& core, int64_t connection, const WorkerEvent& event) {
  const int64_t known = HighestTermOf(event);
  // Who is refused changes nothing, whatever it says of terms.
  RegistrationVerdict verdict = JudgeRegistration(core, event);
  if (verdict.kind != RegistrationVerdict::Kind::kRefuse && known > core.term) {
    RaiseTerm(core, known);
    verdict.kind = RegistrationVerdict::Kind::kAccept;  // Nobody is left whom it could meet.
  }
  switch (verdict.kind) {
    case RegistrationVerdict::Kind::kRefuse:
      core.Log(LogLevel::kWarning, kNoJob,
               absl::StrCat("worker ", event.register_().slot(),
                            " refused: ", verdict.refusal.message()));
      core.Emit(action::CloseConnection{connection, verdict.refusal});
      return;
    case RegistrationVerdict::Kind::kReconnect:
      return Reconnect(core, *core.workers.Find(verdict.present), connection, event);
    case RegistrationVerdict::Kind::kReplace:
      LoseWorker(core, verdict.present, "a new process took its slot",
                 SlotTakenError(event.register_().slot()));
      return Accept(core, connection, event);
    case RegistrationVerdict::Kind::kAccept:
      return Accept(core, connection, event);
  }
}

// False when the event is to be left alone.
bool TakeNumber(Core& core, WorkerRecord& worker, const WorkerEvent& event) {
  if (event.has_beat()) return true;
  if (event.id() == worker.events_received + 1) {
    ++worker.events_received;
    return true;
  }
  if (event.id() >= 1 && event.id() <= worker.events_received) return false;
  core.Emit(
      action::CloseConnection{worker.connection, ProtocolError("an event's number skips one")});
  OnWorkerGone(core, worker.connection);
  return false;
}

void OnBeat(Core& core, WorkerRecord& worker, const control::v1::Beat& beat) {
  WorkerCommand command;
  command.mutable_beat_answer()->set_sequence(beat.sequence());
  SendUnnumbered(core, worker, std::move(command));
}

// True when it was the answer to what ClearLeftovers sent.
bool TakeLeftover(Core& core, WorkerRecord& worker, const WorkerEvent& event) {
  const std::string key = event.has_dropped() ? event.dropped().shard().SerializeAsString()
                          : event.has_group_closed()
                              ? event.group_closed().generation().SerializeAsString()
                              : "";
  if (worker.leftovers.erase(key) == 0) return false;
  if (worker.leftovers.empty()) MembershipChanged(core);
  return true;
}

void Dispatch(Core& core, WorkerRecord& worker, const WorkerEvent& event) {
  switch (event.event_case()) {
    case WorkerEvent::kBeat:
      return OnBeat(core, worker, event.beat());
    case WorkerEvent::kLeaving:
      if (!std::exchange(worker.leaving, true)) MembershipChanged(core);
      core.family_dirty = core.kept_again = true;
      return;
    case WorkerEvent::kGroupOpened:
    case WorkerEvent::kGroupConnected:
    case WorkerEvent::kGroupBroken:
    case WorkerEvent::kGroupClosed:
      if (!TakeLeftover(core, worker, event)) OnGroupEvent(core, worker.number, event);
      return;
    case WorkerEvent::kRegister:
    case WorkerEvent::EVENT_NOT_SET:
      return;
    default:
      if (!TakeLeftover(core, worker, event)) OnShardEvent(core, worker.number, event);
  }
}

}  // namespace

void OnWorkerSaid(Core& core, const event::WorkerSaid& said) {
  WorkerRecord* worker = core.workers.ByConnection(said.connection);
  if (worker == nullptr) {
    if (said.event.has_register_()) return OnRegister(core, said.connection, said.event);
    core.Emit(action::CloseConnection{said.connection, ProtocolError("Register comes first")});
    return;
  }
  if (said.event.term() != core.term || said.event.has_register_()) return;
  worker->last_heard = core.now;
  worker->log.Acknowledge(said.event.ack());
  if (worker->suspect) {
    SetSuspect(core, *worker, false);
    ArmTimer(core, *worker);  // A suspect one's is for the end of its lease.
  }
  if (TakeNumber(core, *worker, said.event)) Dispatch(core, *worker, said.event);
}

void OnWorkerGone(Core& core, int64_t connection) {
  WorkerRecord* worker = core.workers.ByConnection(connection);
  if (worker == nullptr) return;
  worker->connection = 0;
  if (worker->drain_sent) {
    return LoseWorker(core, worker->number, "it left", absl::OkStatus());
  }
  SetSuspect(core, *worker, true);
  ArmTimer(core, *worker);
}

void OnWorkerTimer(Core& core, int64_t number) {
  WorkerRecord* worker = core.workers.Find(number);
  if (worker == nullptr) return;
  if (core.now >= worker->last_heard + core.options.lease) {
    LoseWorker(core, number, "its lease ran out", LeaseExpiredError(worker->slot()));
    return;
  }
  if (core.now >= SuspectAt(core, *worker)) {
    SetSuspect(core, *worker, true);
  }
  ArmTimer(core, *worker);
}

void LoseWorker(Core& core, int64_t number, absl::string_view cause, const absl::Status& farewell) {
  const WorkerRecord* worker = core.workers.Find(number);
  if (worker == nullptr) return;
  const absl::Status lost = WorkerLostError(worker->slot(), cause);
  if (farewell.ok()) {
    core.Log(LogLevel::kInfo, kNoJob, absl::StrCat("worker ", worker->slot(), " has left"));
  } else {
    core.Log(LogLevel::kWarning, kNoJob, std::string(lost.message()));
  }
  if (worker->connection != 0) {
    core.Emit(action::CloseConnection{worker->connection, farewell});
  }
  core.lost_incarnations.push_back(worker->info.incarnation());
  if (core.lost_incarnations.size() > kRememberedLost) core.lost_incarnations.pop_front();
  core.workers.Erase(number);
  core.timers.Cancel(TimerOf(number));
  std::vector<std::pair<int64_t, int32_t>> ranks;
  for (const auto& [run, record] : core.runs.all()) {
    if (record.RankOf(number) >= 0) ranks.emplace_back(run, record.RankOf(number));
  }
  LeaveGroups(core, number, lost);
  for (const auto& [run, rank] : ranks) {
    const RunRecord& record = *core.runs.Find(run);
    // What has been fetched is not needed again.
    if (!(record.state == RunRecord::State::kDraining && record.ranks[rank].drained)) {
      LoseRun(core, run, lost);
    }
    RankGone(core, run, rank);
  }
  core.ledger.EraseWorker(number);
  MembershipChanged(core);
}

void ReleaseLeaving(Core& core) {
  for (auto& [number, worker] : core.workers.all()) {
    if (!worker.leaving || worker.drain_sent || !core.ledger.idle(number)) continue;
    const auto& groups = core.groups.all();
    const bool member = std::any_of(groups.begin(), groups.end(), [n = number](const auto& entry) {
      return entry.second.RankOf(n) >= 0;
    });
    if (member) continue;
    worker.drain_sent = true;
    WorkerCommand command;
    command.mutable_drain();
    core.Send(number, std::move(command));
  }
}

}  // namespace annulus

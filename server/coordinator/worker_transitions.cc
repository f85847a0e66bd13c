#include "server/coordinator/worker_transitions.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/schedule/schedule.h"
#include "proto/wire/convert.h"
#include "proto/wire/rates.h"
#include "proto/wire/ticket.h"
#include "server/coordinator/group_transitions.h"
#include "server/coordinator/kept_state.h"
#include "server/coordinator/run_completion.h"
#include "server/coordinator/run_transitions.h"
#include "server/coordinator/state/errors.h"

namespace annulus {
namespace {

using Kind = RegistrationVerdict::Kind;
constexpr size_t kMaxName = 253;
constexpr size_t kMaxSentence = 1000;
constexpr int kMaxLacks = 100;
// A term is the microsecond at which it began. A term further ahead is an error or an attack: going
// past it would void all running work, and in the end no higher term would be left.
constexpr absl::Duration kMaxTermLead = absl::Hours(24);

absl::Status CheckName(const std::string& name, const char* what) {
  if (name.empty() || name.size() > kMaxName) return InvalidRegistrationError(what);
  return absl::OkStatus();
}

absl::Status CheckTerm(const CoordinatorTables& tables, const control::v1::WorkerEvent& event) {
  const int64_t latest =
      std::max(tables.term, absl::ToUnixMicros(tables.TimeOfDay(tables.now) + kMaxTermLead));
  if (HighestTermOf(event) <= latest) return absl::OkStatus();
  return InvalidRegistrationError("highest_term: is too far in the future");
}

absl::Status CheckRegister(const control::v1::Register& info) {
  if (absl::Status s = CheckName(info.slot(), "slot: must have 1 to 253 characters"); !s.ok())
    return s;
  if (absl::Status s = CheckName(info.incarnation(), "incarnation: must have 1 to 253 characters");
      !s.ok()) {
    return s;
  }
  if (absl::Status s =
          CheckName(info.data_endpoint(), "data_endpoint: must have 1 to 253 characters");
      !s.ok()) {
    return s;
  }
  if (info.protocol_version() != control::v1::PROTOCOL_VERSION_CURRENT) {
    return IncompatibleWorkerError("protocol_version", info.protocol_version(),
                                   control::v1::PROTOCOL_VERSION_CURRENT);
  }
  if (info.schedule_version() != kScheduleVersion) {
    return IncompatibleWorkerError("schedule_version", info.schedule_version(), kScheduleVersion);
  }
  if (info.ticket_key().size() != kTicketKeyBytes) {
    return InvalidRegistrationError("ticket_key: must have 32 bytes");
  }
  if (info.staging_limit_bytes() < 0 || info.device_limit_bytes() < 0 ||
      info.session_limit_bytes() < 0) {
    return InvalidRegistrationError("limits: must be 0 or more bytes");
  }
  if (info.lacks_size() > kMaxLacks) return InvalidRegistrationError("lacks: has too many entries");
  for (const control::v1::Lack& lack : info.lacks()) {
    if (lack.feature().empty() || lack.feature().size() > kMaxName ||
        lack.why_not().size() > kMaxSentence) {
      return InvalidRegistrationError(
          "lacks: each entry must have the name of a feature and a short sentence");
    }
  }
  const absl::Status rates = RatesFromProto(info.rates()).status();
  return rates.ok() ? rates : InvalidRegistrationError(rates.message());
}

// Workers that know no other kind send UNSPECIFIED.
absl::string_view DeviceOf(const control::v1::Register& info) {
  return info.device_kind() == control::v1::DEVICE_KIND_CUDA ? "a GPU" : "a CPU";
}

// Checks the operator's choice, independent of present workers.
absl::Status CheckWanted(const CoordinatorTables& tables, const control::v1::Register& info) {
  if (tables.options.worker_kind == WorkerKind::kAny) return absl::OkStatus();
  const absl::string_view wanted =
      tables.options.worker_kind == WorkerKind::kCuda ? "a GPU" : "a CPU";
  return DeviceOf(info) == wanted ? absl::OkStatus() : UnwantedDeviceError(DeviceOf(info), wanted);
}

// Ranks of two kinds cannot form a group. The worker whose slot is taken does not count. Nor does
// any worker if a higher term begins, as all are then lost.
absl::Status CheckDevice(const CoordinatorTables& tables, const control::v1::WorkerEvent& event,
                         const WorkerRecord* present) {
  const control::v1::Register& info = event.register_();
  if (HighestTermOf(event) > tables.term) return absl::OkStatus();
  for (const auto& [number, worker] : tables.workers.all()) {
    if (&worker != present && DeviceOf(worker.info) != DeviceOf(info)) {
      return OtherDeviceError(DeviceOf(info), worker.slot(), DeviceOf(worker.info));
    }
  }
  return absl::OkStatus();
}

// True if the incarnation was lost in this term: it has received commands of this term and is
// unknown, or it is remembered as lost.
bool WasLost(const CoordinatorTables& tables, const control::v1::WorkerEvent& event) {
  if (event.term() == tables.term && event.ack() > 0) return true;
  const auto& lost = tables.lost_incarnations;
  return std::find(lost.begin(), lost.end(), event.register_().incarnation()) != lost.end();
}

RegistrationVerdict Refuse(absl::Status refusal) { return {Kind::kRefuse, std::move(refusal), 0}; }

}  // namespace

int64_t HighestTermOf(const control::v1::WorkerEvent& event) {
  return std::max(event.register_().highest_term(), event.term());
}

RegistrationVerdict JudgeRegistration(const CoordinatorTables& tables,
                                      const control::v1::WorkerEvent& event) {
  const control::v1::Register& info = event.register_();
  if (absl::Status s = CheckRegister(info); !s.ok()) return Refuse(std::move(s));
  if (absl::Status s = CheckWanted(tables, info); !s.ok()) return Refuse(std::move(s));
  if (absl::Status s = CheckTerm(tables, event); !s.ok()) return Refuse(std::move(s));
  const WorkerRecord* present = tables.workers.BySlot(info.slot());
  if (present != nullptr && present->info.incarnation() == info.incarnation()) {
    return {Kind::kReconnect, absl::OkStatus(), present->number};
  }
  if (WasLost(tables, event)) {
    return Refuse(present != nullptr ? SlotTakenError(info.slot())
                                     : LeaseExpiredError(info.slot()));
  }
  if (absl::Status s = CheckDevice(tables, event, present); !s.ok()) return Refuse(std::move(s));
  if (tables.draining) return Refuse(DrainingError(tables.options.retry_after));
  if (present != nullptr) return {Kind::kReplace, absl::OkStatus(), present->number};
  if (tables.workers.all().size() >= static_cast<size_t>(tables.options.max_workers)) {
    return Refuse(TooManyWorkersError(tables.options.max_workers));
  }
  return {Kind::kAccept, absl::OkStatus(), 0};
}

namespace {

using control::v1::WorkerCommand;
using control::v1::WorkerEvent;

constexpr size_t kRememberedLost = 1024;

TimerKey TimerOf(int64_t worker) { return {TimerKey::Kind::kWorker, worker}; }

// Half an interval after the last beat that may be missed: a late beat is not a missed one.
absl::Time SuspectAt(const CoordinatorTables& tables, const WorkerRecord& worker) {
  return worker.last_heard + tables.options.beat_interval * (tables.options.missed_beats + 0.5);
}

void ArmTimer(CoordinatorTables& tables, const WorkerRecord& worker) {
  const absl::Time lost = worker.last_heard + tables.options.lease;
  tables.timers.Set(TimerOf(worker.number),
                    worker.suspect ? lost : std::min(lost, SuspectAt(tables, worker)));
}

// Sends a command that is not numbered.
void SendUnnumbered(CoordinatorTables& tables, const WorkerRecord& worker, WorkerCommand command) {
  command.set_term(tables.term);
  command.set_ack(worker.events_received);
  tables.Emit(action::SendCommand{worker.connection, {std::move(command), nullptr}});
}

void Welcome(CoordinatorTables& tables, const WorkerRecord& worker) {
  WorkerCommand command;
  *command.mutable_welcome()->mutable_lease() = DurationToProto(tables.options.lease);
  *command.mutable_welcome()->mutable_beat_interval() =
      DurationToProto(tables.options.beat_interval);
  SendUnnumbered(tables, worker, std::move(command));
}

void SetSuspect(CoordinatorTables& tables, WorkerRecord& worker, bool suspect) {
  if (worker.suspect == suspect) return;
  worker.suspect = suspect;
  tables.place_again = true;
  if (!suspect) ++tables.membership_epoch;  // Plans are made for ready workers.
  tables.Log(LogLevel::kInfo, kNoJob,
             absl::StrCat("worker ", worker.slot(), suspect ? " is suspect" : " is back"));
}

// Shards and groups of an earlier term must be freed before the worker gets work.
void ClearLeftovers(CoordinatorTables& tables, WorkerRecord& worker) {
  for (const control::v1::ShardKey& shard : worker.info.resident_shards()) {
    WorkerCommand command;
    *command.mutable_drop()->mutable_shard() = shard;
    worker.leftovers.insert(shard.SerializeAsString());
    tables.Send(worker.number, std::move(command));
  }
  for (const control::v1::Generation& generation : worker.info.formed_groups()) {
    WorkerCommand command;
    *command.mutable_abort_group()->mutable_generation() = generation;
    worker.leftovers.insert(generation.SerializeAsString());
    tables.Send(worker.number, std::move(command));
  }
}

void Accept(CoordinatorTables& tables, int64_t connection, const WorkerEvent& event) {
  WorkerRecord& worker = tables.workers.Add(
      {tables.options.max_unacknowledged, tables.options.max_unacknowledged_bytes});
  worker.info = event.register_();
  worker.rates = *RatesFromProto(worker.info.rates());  // CheckRegister has checked them.
  worker.connection = connection;
  worker.last_heard = tables.now;
  if (worker.info.highest_term() > 0 && worker.info.highest_term() < tables.term &&
      tables.now < tables.started + tables.options.lease && !tables.restarted) {
    tables.restarted = true;
    tables.timers.Set({TimerKey::Kind::kReadiness, 0}, tables.started + tables.options.lease);
  }
  tables.ledger.AddWorker(worker.number,
                          {worker.info.staging_limit_bytes(), worker.info.device_limit_bytes(),
                           KeptLimit(tables, worker.info.staging_limit_bytes())});
  Welcome(tables, worker);
  ClearLeftovers(tables, worker);
  ArmTimer(tables, worker);
  tables.Log(LogLevel::kInfo, kNoJob,
             absl::StrCat("worker ", worker.slot(), " registered: version ", worker.info.version(),
                          ", ", worker.info.backend(), ", ", worker.info.data_endpoint()));
  MembershipChanged(tables);
}

void Reconnect(CoordinatorTables& tables, WorkerRecord& worker, int64_t connection,
               const WorkerEvent& event) {
  if (worker.connection != 0) {
    tables.Emit(action::CloseConnection{worker.connection,
                                        ProtocolError("a newer stream replaced this one")});
  }
  worker.connection = connection;
  worker.last_heard = tables.now;
  if (event.term() == tables.term) worker.log.Acknowledge(event.ack());
  Welcome(tables, worker);
  for (Command command : worker.log.unacknowledged()) {
    command.message.set_ack(worker.events_received);
    tables.Emit(action::SendCommand{connection, std::move(command)});
  }
  SetSuspect(tables, worker, false);
  ArmTimer(tables, worker);
}

// A worker has seen a higher term. The new term must be higher still. Everything of the present
// term is void.
void RaiseTerm(CoordinatorTables& tables, int64_t above) {
  tables.Log(
      LogLevel::kWarning, kNoJob,
      absl::StrCat("a worker reported term ", above, ": the coordinator begins a higher term"));
  std::vector<int64_t> numbers;
  for (const auto& [number, worker] : tables.workers.all()) numbers.push_back(number);
  for (int64_t number : numbers) {
    LoseWorker(tables, number, "a higher term has begun", StaleTermError(above + 1));
  }
  tables.term = above + 1;
  tables.lost_incarnations.clear();
}

void OnRegister(CoordinatorTables& tables, int64_t connection, const WorkerEvent& event) {
  const int64_t known = HighestTermOf(event);
  // A refused worker changes nothing, whichever term it names.
  RegistrationVerdict verdict = JudgeRegistration(tables, event);
  if (verdict.kind != RegistrationVerdict::Kind::kRefuse && known > tables.term) {
    RaiseTerm(tables, known);
    verdict.kind = RegistrationVerdict::Kind::kAccept;  // No worker of the old term is left.
  }
  switch (verdict.kind) {
    case RegistrationVerdict::Kind::kRefuse:
      tables.Log(LogLevel::kWarning, kNoJob,
                 absl::StrCat("worker ", event.register_().slot(),
                              " refused: ", verdict.refusal.message()));
      tables.Emit(action::CloseConnection{connection, verdict.refusal});
      return;
    case RegistrationVerdict::Kind::kReconnect:
      return Reconnect(tables, *tables.workers.Find(verdict.present), connection, event);
    case RegistrationVerdict::Kind::kReplace:
      LoseWorker(tables, verdict.present, "a new process took its slot",
                 SlotTakenError(event.register_().slot()));
      return Accept(tables, connection, event);
    case RegistrationVerdict::Kind::kAccept:
      return Accept(tables, connection, event);
  }
}

// True if the event must be handled.
bool TakeNumber(CoordinatorTables& tables, WorkerRecord& worker, const WorkerEvent& event) {
  if (event.has_beat()) return true;
  if (event.id() == worker.events_received + 1) {
    ++worker.events_received;
    return true;
  }
  if (event.id() >= 1 && event.id() <= worker.events_received) return false;
  tables.Emit(
      action::CloseConnection{worker.connection, ProtocolError("an event number is missing")});
  OnWorkerGone(tables, worker.connection);
  return false;
}

void OnBeat(CoordinatorTables& tables, WorkerRecord& worker, const control::v1::Beat& beat) {
  WorkerCommand command;
  command.mutable_beat_answer()->set_sequence(beat.sequence());
  SendUnnumbered(tables, worker, std::move(command));
}

// True if the event answers a command of ClearLeftovers.
bool TakeLeftover(CoordinatorTables& tables, WorkerRecord& worker, const WorkerEvent& event) {
  const std::string key = event.has_dropped() ? event.dropped().shard().SerializeAsString()
                          : event.has_group_closed()
                              ? event.group_closed().generation().SerializeAsString()
                              : "";
  if (worker.leftovers.erase(key) == 0) return false;
  if (worker.leftovers.empty()) MembershipChanged(tables);
  return true;
}

void Dispatch(CoordinatorTables& tables, WorkerRecord& worker, const WorkerEvent& event) {
  switch (event.event_case()) {
    case WorkerEvent::kBeat:
      return OnBeat(tables, worker, event.beat());
    case WorkerEvent::kLeaving:
      if (!std::exchange(worker.leaving, true)) MembershipChanged(tables);
      tables.family_dirty = tables.kept_again = true;
      return;
    case WorkerEvent::kGroupOpened:
    case WorkerEvent::kGroupConnected:
    case WorkerEvent::kGroupBroken:
    case WorkerEvent::kGroupClosed:
      if (!TakeLeftover(tables, worker, event)) OnGroupEvent(tables, worker.number, event);
      return;
    case WorkerEvent::kRegister:
    case WorkerEvent::EVENT_NOT_SET:
      return;
    default:
      if (!TakeLeftover(tables, worker, event)) OnShardEvent(tables, worker.number, event);
  }
}

}  // namespace

void OnWorkerReported(CoordinatorTables& tables, const event::WorkerReported& said) {
  WorkerRecord* worker = tables.workers.ByConnection(said.connection);
  if (worker == nullptr) {
    if (said.event.has_register_()) return OnRegister(tables, said.connection, said.event);
    tables.Emit(action::CloseConnection{said.connection,
                                        ProtocolError("the first message must be Register")});
    return;
  }
  if (said.event.term() != tables.term || said.event.has_register_()) return;
  worker->last_heard = tables.now;
  worker->log.Acknowledge(said.event.ack());
  if (worker->suspect) {
    SetSuspect(tables, *worker, false);
    ArmTimer(tables, *worker);  // A suspect worker's timer is for the end of its lease.
  }
  if (TakeNumber(tables, *worker, said.event)) Dispatch(tables, *worker, said.event);
}

void OnWorkerGone(CoordinatorTables& tables, int64_t connection) {
  WorkerRecord* worker = tables.workers.ByConnection(connection);
  if (worker == nullptr) return;
  worker->connection = 0;
  if (worker->drain_sent) {
    return LoseWorker(tables, worker->number, "it left", absl::OkStatus());
  }
  SetSuspect(tables, *worker, true);
  ArmTimer(tables, *worker);
}

void OnWorkerTimer(CoordinatorTables& tables, int64_t number) {
  WorkerRecord* worker = tables.workers.Find(number);
  if (worker == nullptr) return;
  if (tables.now >= worker->last_heard + tables.options.lease) {
    LoseWorker(tables, number, "its lease ran out", LeaseExpiredError(worker->slot()));
    return;
  }
  if (tables.now >= SuspectAt(tables, *worker)) {
    SetSuspect(tables, *worker, true);
  }
  ArmTimer(tables, *worker);
}

void LoseWorker(CoordinatorTables& tables, int64_t number, absl::string_view cause,
                const absl::Status& farewell) {
  const WorkerRecord* worker = tables.workers.Find(number);
  if (worker == nullptr) return;
  const absl::Status lost = WorkerLostError(worker->slot(), cause);
  if (farewell.ok()) {
    tables.Log(LogLevel::kInfo, kNoJob, absl::StrCat("worker ", worker->slot(), " has left"));
  } else {
    tables.Log(LogLevel::kWarning, kNoJob, std::string(lost.message()));
  }
  if (worker->connection != 0) {
    tables.Emit(action::CloseConnection{worker->connection, farewell});
  }
  tables.lost_incarnations.push_back(worker->info.incarnation());
  if (tables.lost_incarnations.size() > kRememberedLost) tables.lost_incarnations.pop_front();
  tables.workers.Erase(number);
  tables.timers.Cancel(TimerOf(number));
  std::vector<std::pair<int64_t, int32_t>> ranks;
  for (const auto& [run, record] : tables.runs.all()) {
    if (record.RankOf(number) >= 0) ranks.emplace_back(run, record.RankOf(number));
  }
  LeaveGroups(tables, number, lost);
  for (const auto& [run, rank] : ranks) {
    const RunRecord& record = *tables.runs.Find(run);
    // Fetched outputs are not needed again.
    if (!(record.state == RunRecord::State::kDraining && record.ranks[rank].drained)) {
      LoseRun(tables, run, lost);
    }
    RankGone(tables, run, rank);
  }
  tables.ledger.EraseWorker(number);
  MembershipChanged(tables);
}

void ReleaseLeaving(CoordinatorTables& tables) {
  for (auto& [number, worker] : tables.workers.all()) {
    if (!worker.leaving || worker.drain_sent || !tables.ledger.idle(number)) continue;
    const auto& groups = tables.groups.all();
    const bool member = std::any_of(groups.begin(), groups.end(), [n = number](const auto& entry) {
      return entry.second.RankOf(n) >= 0;
    });
    if (member) continue;
    worker.drain_sent = true;
    WorkerCommand command;
    command.mutable_drain();
    tables.Send(number, std::move(command));
  }
}

}  // namespace annulus

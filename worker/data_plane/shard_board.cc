#include "worker/data_plane/shard_board.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "proto/wire/convert.h"

namespace annulus {

using control::v1::WorkerEvent;

namespace {

absl::Status Error(absl::StatusCode code, absl::string_view reason, absl::string_view message,
                   const ShardId& id) {
  return MakeError(
      code, message,
      {std::string(reason),
       {{"job", id.job_id}, {"attempt", absl::StrCat(id.attempt)}, {"rank", absl::StrCat(id.rank)}},
       {},
       {}});
}

absl::Status BadTicket(const ShardId& id) {
  return Error(absl::StatusCode::kPermissionDenied, "BAD_TICKET",
               "the ticket is for another shard or worker", id);
}

absl::Status TicketExpired(const ShardId& id) {
  return Error(absl::StatusCode::kFailedPrecondition, "TICKET_EXPIRED", "the ticket has expired",
               id);
}

using Actions = std::vector<std::function<void()>>;

void Run(const Actions& actions) {
  for (const auto& action : actions) action();
}

void EndLater(const std::shared_ptr<DataCall>& call, const absl::Status& why, Actions* later) {
  later->push_back([call, why] { call->End(why); });
}

absl::Status TooManyCalls(size_t limit, absl::string_view of_what) {
  return MakeError(
      absl::StatusCode::kResourceExhausted,
      absl::StrCat("this worker serves at most ", limit, " calls", of_what, " at once"),
      {"TOO_MANY_CALLS", {{"limit", absl::StrCat(limit)}}, {}, absl::Seconds(1)});
}

}  // namespace

ShardBoard::ShardBoard(Options options) : options_(std::move(options)) {}

void ShardBoard::ReportLater(WorkerEvent event, Later* later) const {
  later->push_back([this, event = std::move(event)] { options_.report(event); });
}

void ShardBoard::SetIdentity(const Identity& identity) {
  MutexLock lock(&mutex_);
  identity_ = identity;
}

size_t ShardBoard::calls() const {
  MutexLock lock(&mutex_);
  return guests_.size();
}

bool ShardBoard::crowded() const {
  MutexLock lock(&mutex_);
  return guests_.size() > options_.max_calls / 2 ||
         CallsAt(std::nullopt) > options_.max_strangers / 2;
}

void ShardBoard::Open(const ShardId& id, const std::string& principal,
                      std::shared_ptr<StagedShard> shard, const Times& times) {
  Later later;
  {
    MutexLock lock(&mutex_);
    Entry entry;
    entry.principal = principal;
    entry.deadline = options_.now() + times.upload;
    entry.download_time = times.download.value_or(options_.download_lease);
    for (const TensorInfo& tensor : shard->shape().tensors) {
      entry.delivered.emplace_back(shard->shape().rows(tensor), tensor.heads);
    }
    entry.shard = std::move(shard);
    const auto [place, added] = entries_.emplace(id, std::move(entry));
    if (!added) return;
    if (place->second.shard->complete()) Complete(id, &place->second, &later);
    for (auto& [call, guest] : guests_) {
      if (guest.waiting && guest.id == id) Seat(&guest, &later);
    }
  }
  Run(later);
}

void ShardBoard::Complete(const ShardId& id, Entry* entry, Later* later) {
  if (std::exchange(entry->completed, true)) return;
  entry->deadline = absl::InfiniteFuture();
  ReportLater(ShardEvent(&WorkerEvent::mutable_shard_complete, id), later);
}

void ShardBoard::Completed(const ShardId& id) {
  Later later;
  {
    MutexLock lock(&mutex_);
    const auto entry = entries_.find(id);
    if (entry != entries_.end()) Complete(id, &entry->second, &later);
  }
  Run(later);
}

void ShardBoard::Publish(const ShardId& id, const v1::ShardReport& report) {
  Later later;
  {
    MutexLock lock(&mutex_);
    const auto found = entries_.find(id);
    if (found == entries_.end()) return;
    Entry& entry = found->second;
    entry.published = true;
    entry.report = report;
    const int64_t bytes = entry.shard->output_bytes();
    if (bytes > 0) {
      entry.deadline =
          options_.now() + entry.download_time +
          absl::Seconds(bytes / std::max<int64_t>(1, options_.rate.floor_bytes_per_second));
    }
    for (auto& [call, guest] : guests_) {
      if (guest.waiting && guest.id == id) Seat(&guest, &later);
    }
  }
  Run(later);
}

void ShardBoard::Close(const ShardId& id, const absl::Status& why) {
  Later later;
  Entry closed;  // Its reference is released without the lock.
  {
    MutexLock lock(&mutex_);
    const auto entry = entries_.find(id);
    if (entry != entries_.end()) {
      closed = std::move(entry->second);
      entries_.erase(entry);
    }
    ended_.Add(id);
    for (auto& [call, guest] : guests_) {
      if (guest.id == id) EndLater(guest.call, why, &later);
    }
  }
  Run(later);
}

void ShardBoard::Shutdown(const absl::Status& why) {
  Later later;
  {
    MutexLock lock(&mutex_);
    shutdown_ = why;
    for (auto& [call, guest] : guests_) EndLater(guest.call, why, &later);
  }
  Run(later);
}

void ShardBoard::Enter(std::shared_ptr<DataCall> call) {
  Later later;
  {
    MutexLock lock(&mutex_);
    const absl::Status status = Admit(call, &later);
    if (!status.ok()) EndLater(call, status, &later);
  }
  Run(later);
}

void ShardBoard::Present(DataCall* call, absl::string_view ticket, Stage stage) {
  Later later;
  {
    MutexLock lock(&mutex_);
    const auto guest = guests_.find(call);
    if (guest == guests_.end()) return;
    const absl::Status status = TakeTicket(&guest->second, ticket, stage, &later);
    if (!status.ok()) EndLater(guest->second.call, status, &later);
  }
  Run(later);
}

void ShardBoard::Join(std::shared_ptr<DataCall> call, absl::string_view ticket, Stage stage) {
  Later later;
  {
    MutexLock lock(&mutex_);
    absl::Status status = Admit(call, &later);
    if (status.ok()) status = TakeTicket(&guests_.at(call.get()), ticket, stage, &later);
    if (!status.ok()) EndLater(call, status, &later);
  }
  Run(later);
}

size_t ShardBoard::CallsAt(const std::optional<ShardId>& id) const {
  return std::count_if(guests_.begin(), guests_.end(), [&](const auto& entry) {
    return entry.second.has_ticket ? id == entry.second.id : !id.has_value();
  });
}

// Removes the call at once, so later messages of it have no effect.
void ShardBoard::DismissStranger(Later* later) {
  auto oldest = guests_.end();
  for (auto guest = guests_.begin(); guest != guests_.end(); ++guest) {
    if (guest->second.has_ticket) continue;
    if (oldest == guests_.end() || guest->second.deadline < oldest->second.deadline) oldest = guest;
  }
  if (oldest == guests_.end()) return;
  EndLater(oldest->second.call, TooManyCalls(options_.max_strangers, " without a ticket"), later);
  guests_.erase(oldest);
}

absl::Status ShardBoard::Admit(const std::shared_ptr<DataCall>& call, Later* later) {
  RETURN_IF_ERROR(shutdown_);
  // A client with a valid ticket presents it soon. So the call that has been silent longest is
  // ended, not the new one.
  if (CallsAt(std::nullopt) >= options_.max_strangers) DismissStranger(later);
  if (guests_.size() >= options_.max_calls) return TooManyCalls(options_.max_calls, "");
  Guest guest;
  guest.call = call;
  guest.deadline = options_.now() + options_.ticket_wait;
  guests_.emplace(call.get(), std::move(guest));
  return absl::OkStatus();
}

absl::Status ShardBoard::TakeTicket(Guest* guest, absl::string_view ticket, Stage stage,
                                    Later* later) {
  RETURN_IF_ERROR(shutdown_);
  // The expiry is not checked here. A shard on the board belongs to a running job, whose deadline
  // the coordinator enforces, so its ticket is valid whatever this machine's clock shows.
  ASSIGN_OR_RETURN(TicketClaims claims,
                   VerifyTicket(identity_.ticket_key, ticket, absl::InfinitePast()));
  const ShardId id{claims.job_id, claims.attempt, claims.rank};
  if (claims.incarnation != identity_.incarnation) return BadTicket(id);
  if (ended_.Has(id)) {
    return Expired(claims)
               ? TicketExpired(id)
               : Error(absl::StatusCode::kAborted, "JOB_ENDED", "the job has ended", id);
  }
  const size_t limit = options_.max_shard_calls;
  if (CallsAt(id) >= limit) return TooManyCalls(limit, " at one shard");
  guest->has_ticket = true;
  guest->id = id;
  guest->claims = std::move(claims);
  guest->stage = stage;
  guest->deadline = options_.now() + options_.reserve_wait;
  Seat(guest, later);
  return absl::OkStatus();
}

absl::Status ShardBoard::TooLate(const Guest& guest) const {
  if (guest.has_ticket && Expired(guest.claims)) return TicketExpired(guest.id);
  if (guest.has_ticket) {
    return Error(absl::StatusCode::kNotFound, "SHARD_NOT_FOUND",
                 "this worker does not have the shard", guest.id);
  }
  return MakeError(
      absl::StatusCode::kDeadlineExceeded,
      absl::StrCat("no ticket arrived within ", absl::FormatDuration(options_.ticket_wait)),
      {"UPLOAD_STALLED", {{"window", absl::FormatDuration(options_.ticket_wait)}}, {}, {}});
}

void ShardBoard::Seat(Guest* guest, Later* later) {
  const auto found = entries_.find(guest->id);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  if (guest->claims.principal != entry.principal ||
      guest->claims.input_bytes != entry.shard->expected_bytes()) {
    return EndLater(guest->call, BadTicket(guest->id), later);
  }
  guest->deadline = absl::InfiniteFuture();
  if (guest->stage == Stage::kOutputs && !entry.published) return;
  guest->waiting = false;
  later->push_back([call = guest->call, id = guest->id, shard = entry.shard,
                    report = entry.report] { call->OnShard(id, shard, report); });
}

void ShardBoard::Leave(DataCall* call) {
  std::shared_ptr<DataCall> last;  // May be the last reference; released without the lock.
  MutexLock lock(&mutex_);
  const auto guest = guests_.find(call);
  if (guest == guests_.end()) return;
  last = std::move(guest->second.call);
  guests_.erase(guest);
}

void ShardBoard::Delivered(const ShardId& id,
                           const std::vector<std::pair<size_t, CellRect>>& cells) {
  Later later;
  {
    MutexLock lock(&mutex_);
    const auto found = entries_.find(id);
    if (found == entries_.end()) return;
    Entry& entry = found->second;
    for (const auto& [tensor, rect] : cells) {
      // An output requested in a hostile order never counts as delivered. No other effect.
      if (!entry.delivered[tensor].Add(rect).ok()) return;
    }
    const std::vector<TensorInfo>& tensors = entry.shard->shape().tensors;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].direction == Direction::kOutput && !entry.delivered[i].complete()) return;
    }
    if (std::exchange(entry.drained, true)) return;
    entry.deadline = absl::InfiniteFuture();
    ReportLater(ShardEvent(&WorkerEvent::mutable_output_drained, id), &later);
  }
  Run(later);
}

void ShardBoard::Abandon(const ShardId& id, Entry* entry, const absl::Status& why, Later* later) {
  if (std::exchange(entry->abandoned, true)) return;
  WorkerEvent event = ShardEvent(&WorkerEvent::mutable_shard_abandoned, id);
  *event.mutable_shard_abandoned()->mutable_error() = ErrorToProto(why);
  ReportLater(std::move(event), later);
}

void ShardBoard::Expire(const ShardId& id, Entry* entry, Later* later) {
  const absl::Status why = entry->published
                               ? Error(absl::StatusCode::kDeadlineExceeded, "DOWNLOAD_STALLED",
                                       "the outputs were not fetched in time", id)
                               : Error(absl::StatusCode::kDeadlineExceeded, "UPLOAD_STALLED",
                                       "the upload was not complete in time", id);
  Abandon(id, entry, why, later);
  for (auto& [call, guest] : guests_) {
    if (guest.id == id) EndLater(guest.call, why, later);
  }
}

std::vector<ShardBoard::Late> ShardBoard::FindLate(absl::Time now) const {
  std::vector<Guest> guests;
  {
    MutexLock lock(&mutex_);
    for (auto& [call, guest] : guests_) guests.push_back(guest);
  }
  // Called without the board's lock: a call may hold its own lock while it calls the board.
  std::vector<Late> late;
  for (const Guest& guest : guests) {
    if (now >= guest.deadline) {
      late.push_back({guest.call, TooLate(guest), /*waited=*/true});
    } else if (auto stalled = guest.call->Stalled(now); stalled.has_value()) {
      late.push_back({guest.call, *stalled, /*waited=*/false});
    }
  }
  return late;
}

bool ShardBoard::GoesOn(const ShardId& id, Stage stage) const {
  return std::any_of(guests_.begin(), guests_.end(), [&](const auto& entry) {
    const Guest& guest = entry.second;
    return guest.id == id && guest.stage == stage && !guest.waiting && !guest.stalled;
  });
}

void ShardBoard::EndLate(const std::vector<Late>& late, absl::Time now, Later* later) {
  for (const Late& one : late) {
    const auto guest = guests_.find(one.call.get());
    if (guest == guests_.end() || (one.waited && now < guest->second.deadline)) continue;
    guest->second.stalled = !one.waited;
    EndLater(one.call, one.why, later);
  }
  // A stalled call does not abandon the shard if another call of the same stage is active: a client
  // whose connection broke reconnects. Nor if another call has already finished the work.
  for (const Late& one : late) {
    const auto found = guests_.find(one.call.get());
    if (found == guests_.end() || !found->second.stalled) continue;
    const Guest& guest = found->second;
    const auto entry = entries_.find(guest.id);
    if (entry == entries_.end() || GoesOn(guest.id, guest.stage)) continue;
    const bool done =
        guest.stage == Stage::kReserved ? entry->second.completed : entry->second.drained;
    if (!done) Abandon(guest.id, &entry->second, one.why, later);
  }
}

void ShardBoard::Tick() {
  Later later;
  const absl::Time now = options_.now();
  const std::vector<Late> late = FindLate(now);
  {
    MutexLock lock(&mutex_);
    EndLate(late, now, &later);
    for (auto& [id, entry] : entries_) {
      if (now >= entry.deadline && !entry.abandoned) Expire(id, &entry, &later);
    }
  }
  Run(later);
}

}  // namespace annulus

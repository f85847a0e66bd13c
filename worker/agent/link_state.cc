#include "worker/agent/link_state.h"

#include <algorithm>
#include <utility>

#include "proto/wire/convert.h"

namespace annulus {

using control::v1::WorkerCommand;
using control::v1::WorkerEvent;

LinkState::LinkState(Options options) : options_(std::move(options)) {}

LinkState::Verdict LinkState::Receive(const WorkerCommand& command, absl::Time now) {
  if (phase_ == Phase::kDown || command.term() < term_) return Verdict::kIgnore;
  if (command.command_case() == WorkerCommand::kWelcome) return ReceiveWelcome(command, now);
  if (phase_ != Phase::kUp || command.term() != term_) return Verdict::kBroken;
  Acknowledge(command.ack());
  if (command.command_case() == WorkerCommand::kBeatAnswer) {
    while (!beats_.empty() && beats_.front().first <= command.beat_answer().sequence()) {
      const auto [sequence, sent] = beats_.front();
      beats_.pop_front();
      if (sequence == command.beat_answer().sequence()) lease_end_ = sent + LeaseHere();
    }
    return Verdict::kIgnore;
  }
  if (command.id() <= 0) return Verdict::kBroken;
  if (command.id() <= last_command_) return Verdict::kIgnore;
  if (command.id() != last_command_ + 1) return Verdict::kBroken;
  last_command_ = command.id();
  return Verdict::kObey;
}

LinkState::Verdict LinkState::ReceiveWelcome(const WorkerCommand& command, absl::Time now) {
  if (phase_ != Phase::kConnecting || command.id() != 0 || command.term() <= 0) {
    return Verdict::kBroken;
  }
  if (command.term() > term_) {
    term_ = command.term();
    last_command_ = 0;
    last_event_ = 0;
    pending_.clear();
  }
  Acknowledge(command.ack());
  phase_ = Phase::kUp;
  retries_ = 0;
  lease_ = DurationFromProto(command.welcome().lease());
  beat_interval_ = DurationFromProto(command.welcome().beat_interval());
  if (lease_ <= absl::ZeroDuration() || beat_interval_ <= absl::ZeroDuration()) {
    return Verdict::kBroken;
  }
  beats_.clear();
  // The coordinator's lease began between these two times. Shards of this worker must not outlive
  // it, so the earlier time counts. A worker without a lease has no shards and may have waited
  // long, so the later time counts.
  const bool had_lease = lease_end_ != absl::InfiniteFuture();
  lease_end_ = (had_lease ? connect_sent_ : now) + LeaseHere();
  next_beat_ = now;
  return Verdict::kWelcome;
}

void LinkState::Acknowledge(int64_t id) {
  while (!pending_.empty() && pending_.front().id() <= id) pending_.pop_front();
}

// One tenth shorter, so that this worker has released its shards before the coordinator assigns the
// work to others.
absl::Duration LinkState::LeaseHere() const { return lease_ * 9 / 10; }

std::optional<WorkerEvent> LinkState::Number(WorkerEvent fact) {
  fact.set_id(++last_event_);
  pending_.push_back(std::move(fact));
  if (pending_.size() > options_.max_pending) overflowed_ = true;
  if (!up()) return std::nullopt;
  return Stamp(pending_.back());
}

std::deque<WorkerEvent> LinkState::Pending() const {
  std::deque<WorkerEvent> events;
  for (const WorkerEvent& event : pending_) events.push_back(Stamp(event));
  return events;
}

WorkerEvent LinkState::Stamp(WorkerEvent event) const {
  event.set_term(term_);
  event.set_ack(last_command_);
  return event;
}

void LinkState::Connecting(absl::Time now) {
  phase_ = Phase::kConnecting;
  connect_sent_ = now;
}

void LinkState::Closed(absl::Time now) {
  phase_ = Phase::kDown;
  next_beat_ = absl::InfiniteFuture();
  beats_.clear();
  absl::Duration wait = options_.first_retry;
  for (int i = 0; i < retries_ && wait < options_.last_retry; ++i) wait *= 2;
  wait = std::min(wait, options_.last_retry);
  ++retries_;
  retry_at_ = now + wait * (0.5 + options_.random() / 2);
}

void LinkState::Reset(absl::Time now) {
  Closed(now);
  last_command_ = 0;
  last_event_ = 0;
  pending_.clear();
  overflowed_ = false;
  lease_end_ = absl::InfiniteFuture();
  last_beat_ = 0;
}

bool LinkState::ShouldGiveUp(absl::Time now) const {
  return phase_ == Phase::kConnecting && now >= connect_sent_ + options_.welcome_timeout;
}

std::optional<WorkerEvent> LinkState::Beat(absl::Time now) {
  if (!up() || now < next_beat_) return std::nullopt;
  next_beat_ = now + beat_interval_;
  beats_.emplace_back(++last_beat_, now);
  WorkerEvent event;
  event.mutable_beat()->set_sequence(last_beat_);
  return Stamp(std::move(event));
}

absl::Time LinkState::NextWake() const {
  absl::Time wake = lease_end_;
  if (phase_ == Phase::kDown) wake = std::min(wake, retry_at_);
  if (phase_ == Phase::kConnecting) wake = std::min(wake, connect_sent_ + options_.welcome_timeout);
  if (phase_ == Phase::kUp) wake = std::min(wake, next_beat_);
  return wake;
}

}  // namespace annulus

#include "tests/client/session/session_world.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "client/session/retry.h"
#include "client/session/state_handoff.h"
#include "client/transport/session_errors.h"
#include "proto/wire/convert.h"

namespace annulus {
namespace {

constexpr int kRowsOfRank = 4;
constexpr absl::Duration kStep = absl::Milliseconds(20);

bool SameError(const absl::Status& a, const absl::Status& b) {
  return a.code() == b.code() && a.message() == b.message();
}

}  // namespace

AttentionSpec SpecOfRanks(int ranks) {
  AttentionSpec spec;
  spec.q_heads = spec.kv_heads = 1;
  spec.head_dim = 8;
  spec.sequences.resize(1);
  spec.sequences[0].q_len = spec.sequences[0].kv_len = ranks * kRowsOfRank;
  return spec;
}

v1::Plan PlanOfRanks(int ranks, int attempt) {
  v1::Plan plan;
  plan.set_attempt(attempt);
  for (int rank = 0; rank < ranks; ++rank) {
    v1::ShardPlan* shard = plan.add_shards();
    const int64_t begin = rank * kRowsOfRank;
    const RowMap rows({RowRange{begin, kRowsOfRank, kRowsOfRank, 1}});
    shard->set_rank(rank);
    RowMapToProto(rows, shard->mutable_q_rows());
    RowMapToProto(rows, shard->mutable_kv_rows());
    shard->set_input_bytes(30);
    shard->set_output_bytes(10);
  }
  return plan;
}

v1::JobEvent StateEvent(v1::Job::State state, const absl::Status& error) {
  v1::JobEvent event;
  event.set_job_id("job");
  event.mutable_state_changed()->set_state(state);
  if (!error.ok()) *event.mutable_state_changed()->mutable_error() = ErrorToProto(error);
  if (state == v1::Job::STATE_DRAINING || state == v1::Job::STATE_SUCCEEDED) {
    event.mutable_state_changed()->mutable_stats()->set_job_id("job");
  }
  return event;
}

v1::JobEvent PlacedEvent(const v1::Plan& plan) {
  v1::JobEvent event;
  event.set_job_id("job");
  *event.mutable_placed() = plan;
  return event;
}

SessionWorld::SessionWorld(uint64_t seed)
    : agenda_(seed),
      ranks_(1 + static_cast<int>(agenda_.Below(3))),
      trouble_(agenda_.Chance(0.2) ? 0 : 0.02 + 0.001 * static_cast<double>(agenda_.Below(150))) {
  spec_ = SpecOfRanks(ranks_);
  options_.spec = &spec_;
  if (agenda_.Chance(0.25)) spec_.forward.keep_state = absl::Minutes(1);
  if (agenda_.Chance(0.25)) spec_.gradients.release_state = true;
  options_.inputs_in_memory = agenda_.Chance(0.7);
  options_.outputs_in_memory = agenda_.Chance(0.7);
  options_.may_be_joined = agenda_.Chance(0.3);
  options_.awaits_end_of_call =
      options_.may_be_joined || spec_.keeps_state() || spec_.gradients.release_state;
  options_.grace = options_.outputs_grace = absl::Milliseconds(100 + agenda_.Below(400));
  if (trouble_ > 0) options_.deadline = agenda_.now() + absl::Seconds(2);
  machine_.emplace(options_, agenda_.now());
}

void SessionWorld::Wrong(std::string what) { wrongs_.push_back(std::move(what)); }

void SessionWorld::Run() {
  agenda_.After(kStep, [this] { TellNext(); });
  if (trouble_ > 0) {
    agenda_.At(options_.deadline, [this] { EndCall(absl::DeadlineExceededError("late")); });
    if (agenda_.Chance(trouble_)) {
      agenda_.After(agenda_.Delay(absl::Milliseconds(300)), [this] {
        if (end_.has_value()) return;
        caller_left_ = true;
        told_errors_.push_back(absl::CancelledError("enough"));
        Do(machine_->OnFailure(told_errors_.back()));
      });
    }
  }
  const absl::Time last = agenda_.now() + absl::Seconds(10);
  while (agenda_.now() < last) {
    const absl::Time wake = machine_->wake();
    const bool ran = agenda_.RunOne(std::min(wake, last));
    if (!ran && agenda_.now() >= wake) {
      Alarm();
      if (machine_->wake() <= agenda_.now()) return Wrong("the alarm went in vain");
    } else if (agenda_.now() < machine_->wake() && agenda_.Chance(trouble_)) {
      const bool failed = machine_->failed();
      Do(machine_->OnTime(agenda_.now()));
      if (machine_->failed() != failed) Wrong("it did not wait for its time");
    }
  }
  if (!end_.has_value()) Wrong("the session has not ended");
  if (call_open_) Wrong("the call is open");
}

void SessionWorld::Alarm() {
  seen_.insert("alarm");
  const absl::Time now = agenda_.now();
  const bool late = !call_open_ && call_status_.ok() && now >= options_.deadline;
  const bool silent = now >= first_error_ + options_.grace;
  const bool broken = now >= broke_ + options_.outputs_grace;
  if (late) {
    told_errors_.push_back(NameExpiry(
        absl::DeadlineExceededError("the outputs did not arrive in time"), /*waited=*/false));
  }
  Do(machine_->OnTime(now));
  if (!late && !silent && !broken) Wrong("an alarm of nothing");
  stands_ = false;  // Too late.
  patient_ = patient_ && !machine_->failed();
}

void SessionWorld::Do(SessionStateMachine::Actions actions) {
  const bool acts = actions.cancel_streams || actions.start.has_value() || actions.tell_progress;
  if (end_.has_value() && (acts || actions.end.has_value())) Wrong("an action after the end");
  if (machine_->failed() && actions.start.has_value()) Wrong("a start in vain");
  if (machine_->failed() && actions.tell_progress) Wrong("progress of what has failed");
  if (actions.cancel_run_job && call_open_ && !call_cancelled_) {
    call_cancelled_ = true;
    agenda_.After(agenda_.Delay(kStep), [this] { EndCall(absl::CancelledError("call")); });
  }
  if (actions.cancel_streams) {
    for (const auto& [stream, standing] : streams_) {
      if (standing != Standing::kLive) continue;
      agenda_.After(agenda_.Delay(kStep), [this, id = stream, attempt = started_] {
        EndStream(attempt, id, absl::CancelledError("stream"));
      });
    }
  }
  if (actions.start.has_value()) Start(*actions.start);
  if (actions.end.has_value()) JudgeEnd(*actions.end);
  if (!machine_->failed() || end_.has_value()) return;
  if (call_open_ && !call_cancelled_) Wrong("a failed session's call goes on");
}

void SessionWorld::Start(const SessionStateMachine::Placement& placement) {
  for (const auto& [stream, standing] : streams_) {
    if (standing == Standing::kLive) Wrong("streams of two attempts at once");
  }
  if (placement.plan.attempt() != attempt_) Wrong("an old placement");
  if (placement.rows.size() != static_cast<size_t>(ranks_)) Wrong("rows of other ranks");
  if (started_ > 0) {
    seen_.insert("sent again");
    const bool here = options_.inputs_in_memory && options_.outputs_in_memory;
    if (!here) Wrong("sent again what is gone");
  }
  started_ = attempt_;
  first_error_ = absl::InfiniteFuture();
  stats_told_ = false;
  reported_.clear();
  for (int rank = 0; rank < ranks_; ++rank) {
    for (const Stream direction : {Stream::kUpload, Stream::kDownload}) {
      streams_[{rank, direction}] = Standing::kLive;
      PlanStream(attempt_, {rank, direction});
    }
  }
}

void SessionWorld::PlanStream(int attempt, StreamId stream) {
  const absl::Duration delay = agenda_.Delay(5 * kStep);
  if (agenda_.Chance(trouble_ / 2)) return;  // The stream hangs.
  if (agenda_.Chance(trouble_)) {
    agenda_.After(delay, [=] { EndStream(attempt, stream, RandomError()); });
    return;
  }
  agenda_.After(delay, [=] {
    if (attempt != started_ || streams_[stream] != Standing::kLive) return;
    if (!end_.has_value()) Do(machine_->OnMoved(stream.second, 10));
    if (stream.second == Stream::kDownload && !agenda_.Chance(trouble_)) {
      machine_->OnReport(attempt, stream.first, v1::ShardReport());
      reported_.insert(stream.first);
    }
    EndStream(attempt, stream, absl::OkStatus());
  });
}

void SessionWorld::EndStream(int attempt, StreamId stream, const absl::Status& status) {
  if (attempt != started_ || streams_[stream] != Standing::kLive) return;
  streams_[stream] = status.ok() ? Standing::kWell : Standing::kBroken;
  if (end_.has_value()) Wrong("it ended with streams open");
  // An error of an abandoned attempt does not count.
  const bool counts = started_ == attempt_ && !requeued_ && !machine_->failed();
  if (counts && !status.ok()) told_errors_.push_back(status);
  if (counts && !status.ok() && !CoordinatorDecides(status)) hard_ = true;
  if (counts && !status.ok()) first_error_ = std::min(first_error_, agenda_.now());
  Do(machine_->OnStreamDone(attempt, stream.second, status, agenda_.now()));
  if (counts && hard_ && !machine_->failed()) Wrong("a stream's own error was passed over");
}

absl::Status SessionWorld::RandomError() {
  switch (agenda_.Below(6)) {
    case 0:
      return absl::UnavailableError("worker");
    case 1:
      return absl::NotFoundError("ticket");
    case 2:
      return absl::AbortedError("abort");
    case 3:
      return absl::CancelledError("cut");
    case 4:
      return MakeError(absl::StatusCode::kPermissionDenied, "key", {"BAD_TICKET", {}, {}, {}});
    default:
      return absl::DataLossError("crc");
  }
}

void SessionWorld::TellNext() {
  if (!call_open_) return;
  absl::Duration until_next = agenda_.Delay(3 * kStep);
  if (agenda_.Chance(trouble_ / 2)) {
    return EndCall(agenda_.Chance(0.5) ? absl::UnavailableError("coordinator") : absl::OkStatus());
  }
  if (told_ != v1::Job::STATE_SUCCEEDED && agenda_.Chance(trouble_ / 2)) {
    job_error_ = agenda_.Chance(0.5) ? absl::AbortedError("job") : absl::InternalError("kernel");
    told_errors_.push_back(job_error_);
    told_ = v1::Job::STATE_FAILED;
    Broke(job_error_);
    Tell(StateEvent(v1::Job::STATE_FAILED, job_error_));
    return EndCall(absl::OkStatus());
  }
  // Another call with its request id has all outputs.
  const bool others = options_.may_be_joined && agenda_.Chance(trouble_);
  const bool runs = told_ == v1::Job::STATE_UPLOADING || told_ == v1::Job::STATE_DRAINING;
  if (runs && agenda_.Chance(trouble_)) {
    told_ = v1::Job::STATE_QUEUED;
    requeued_ = agenda_.Chance(0.7);  // Otherwise the next placement shows it.
    if (requeued_) Tell(StateEvent(told_));
  } else if (told_ == v1::Job::STATE_UNSPECIFIED) {
    Tell(StateEvent(told_ = v1::Job::STATE_QUEUED));
  } else if (told_ == v1::Job::STATE_QUEUED) {
    ++attempt_;
    requeued_ = false;
    told_ = v1::Job::STATE_UPLOADING;
    Tell(PlacedEvent(PlanOfRanks(ranks_, attempt_)));
  } else if (told_ == v1::Job::STATE_UPLOADING && AllWell(Stream::kUpload)) {
    Tell(StateEvent(told_ = v1::Job::STATE_DRAINING));
  } else if (told_ == v1::Job::STATE_DRAINING && (AllWell(Stream::kDownload) || others)) {
    Tell(StateEvent(told_ = v1::Job::STATE_SUCCEEDED));
  } else if (told_ == v1::Job::STATE_SUCCEEDED) {
    return EndCall(absl::OkStatus());
  }
  agenda_.After(until_next, [this] { TellNext(); });
}

void SessionWorld::Tell(const v1::JobEvent& event) {
  stats_told_ = stats_told_ || event.state_changed().has_stats();
  Do(machine_->OnJobEvent(event, agenda_.now()));
}

void SessionWorld::EndCall(const absl::Status& status) {
  if (!call_open_) return;
  call_open_ = false;
  call_status_ = status;
  if (!status.ok()) told_errors_.push_back(status);
  if (told_ != v1::Job::STATE_FAILED && (!status.ok() || told_ != v1::Job::STATE_SUCCEEDED)) {
    Broke(status.ok() ? absl::UnavailableError("it ended") : status);
  }
  Do(machine_->OnRunJobDone(status, agenda_.now()));
}

void SessionWorld::Broke(const absl::Status& error) {
  broke_ = std::min(broke_, agenda_.now());
  stands_ = options_.outputs_in_memory && started_ == attempt_ && !requeued_ &&
            !machine_->failed() && StandsUnconfirmed(spec_, error);
}

bool SessionWorld::AllWell(Stream direction) const {
  if (started_ != attempt_ || started_ == 0) return false;
  return std::all_of(streams_.begin(), streams_.end(), [&](const auto& stream) {
    return stream.first.second != direction || stream.second == Standing::kWell;
  });
}

void SessionWorld::JudgeEnd(const SessionStateMachine::End& end) {
  end_ = end;
  for (const auto& [stream, standing] : streams_) {
    if (standing == Standing::kLive) Wrong("it ended with streams open");
  }
  if (end.status.ok()) return JudgeAnswer(end);
  seen_.insert(absl::StrCat("failed: ", absl::StatusCodeToString(end.status.code())));
  const bool clean = told_ == v1::Job::STATE_SUCCEEDED && AllWell(Stream::kUpload) &&
                     AllWell(Stream::kDownload) && !call_open_ && call_status_.ok();
  if (clean && !caller_left_) Wrong("an answer was lost");
  if (stands_ && AllWell(Stream::kUpload) && AllWell(Stream::kDownload) && !caller_left_) {
    Wrong("rows that stand were thrown away");
  }
  const bool shared = told_ == v1::Job::STATE_SUCCEEDED && options_.may_be_joined && patient_;
  if (shared && call_status_.ok() && !hard_ && !caller_left_) JudgeRetry(end.status);
  if (call_open_) Wrong("it failed with its call open");
  if (trouble_ == 0) Wrong("an error that nobody made");
  for (const absl::Status& own :
       {SendAgainError(), OutputsGoneError(), EndedForAnotherError(),
        absl::UnavailableError("the coordinator ended the call before the job ended")}) {
    if (SameError(own, end.status)) return;
  }
  for (const absl::Status& told : told_errors_) {
    if (SameError(told, end.status) || SameError(UndecidedError(told), end.status)) return;
  }
  Wrong(absl::StrCat("an error from nowhere: ", end.status.ToString()));
}

void SessionWorld::JudgeRetry(const absl::Status& error) {
  seen_.insert("ended for another");
  RetryPolicy policy(2, [] { return 0.0; });
  if (policy.Next(error, agenda_.now(), absl::InfiniteFuture()).has_value()) return;
  Wrong(absl::StrCat("nobody sends it again: ", error.ToString()));
}

void SessionWorld::JudgeAnswer(const SessionStateMachine::End& end) {
  seen_.insert(end.unconfirmed.has_value() ? "unconfirmed" : call_open_ ? "early" : "answered");
  if (caller_left_) Wrong("an answer to a caller that has left");
  if (hard_) Wrong("an answer in spite of a stream's own error");
  if (started_ != attempt_ || requeued_) Wrong("an answer of an attempt that is lost");
  if (!AllWell(Stream::kDownload)) Wrong("an answer that lacks outputs");
  if (options_.may_be_joined && !AllWell(Stream::kUpload)) Wrong("an answer to others' inputs");
  if (call_open_) {
    if (options_.awaits_end_of_call) Wrong("an answer before its call's end");
    if (!stats_told_ && reported_.size() != static_cast<size_t>(ranks_)) {
      Wrong("stats that are not here");
    }
    return;
  }
  const bool broken = !job_error_.ok() || !call_status_.ok() || told_ != v1::Job::STATE_SUCCEEDED;
  if (broken != end.unconfirmed.has_value()) Wrong("a word too much or too little of its end");
  if (end.unconfirmed.has_value() && !StandsUnconfirmed(spec_, *end.unconfirmed)) {
    Wrong("an answer that does not stand");
  }
  if (end.unconfirmed.has_value() && !options_.outputs_in_memory) Wrong("told to an observer");
}

}  // namespace annulus

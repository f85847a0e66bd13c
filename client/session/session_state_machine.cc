#include "client/session/session_state_machine.h"

#include <algorithm>
#include <utility>

#include "client/session/state_handoff.h"
#include "client/transport/session_errors.h"
#include "proto/wire/convert.h"
#include "proto/wire/job_stats.h"

namespace annulus {

SessionStateMachine::SessionStateMachine(Options options, absl::Time now)
    : options_(std::move(options)), seen_(now, AnsweredLseBase(*options_.spec)) {}

SessionStateMachine::Actions SessionStateMachine::OnJobEvent(const v1::JobEvent& event,
                                                             absl::Time now) {
  if (failed_.has_value()) return Take();
  if (ended_) {
    // All outputs are here, so a new attempt would be wasted.
    actions_.cancel_run_job = event.has_placed();
    return Take();
  }
  switch (event.event_case()) {
    case v1::JobEvent::kStateChanged:
      OnState(event.state_changed(), now);
      break;
    case v1::JobEvent::kPlaced:
      OnPlaced(event.job_id(), event.placed());
      StartIfQuiet(now);
      break;
    case v1::JobEvent::kProgress:
      progress_.segments_done = event.progress().segments_done();
      progress_.segments = event.progress().segments();
      break;
    // A new plan sends all shards anyway, and outputs are fetched as soon as they are ready:
    // shard_needed and rows_ready add nothing.
    default:
      break;
  }
  actions_.tell_progress = !failed_.has_value();
  return Take();
}

void SessionStateMachine::OnState(const v1::Job& job, absl::Time now) {
  progress_.state = job.state();
  if (job.has_stats()) stats_ = job.stats();
  if (job.state() == v1::Job::STATE_QUEUED && progress_.attempt > 0) {
    lost_ = true;
    // The new attempt was lost before it began.
    waiting_.reset();
  }
  if (job.state() == v1::Job::STATE_SUCCEEDED) {
    succeeded_ = true;
  } else if (job.state() == v1::Job::STATE_FAILED || job.state() == v1::Job::STATE_CANCELLED) {
    const absl::Status error = ErrorFromProto(job.error());
    EndWith(error.ok() ? absl::UnknownError("the job ended without an error message") : error, now);
  }
}

void SessionStateMachine::OnPlaced(const std::string& job_id, const v1::Plan& plan) {
  const bool resends = options_.inputs_in_memory && options_.outputs_in_memory;
  if (progress_.attempt != 0 && !resends) return Fail(SendAgainError());
  absl::StatusOr<std::vector<ShardRows>> rows = RowsOfPlan(plan, *options_.spec);
  if (!rows.ok()) return Fail(rows.status());
  waiting_ = Placement{job_id, plan, *std::move(rows)};
  progress_.attempt = std::max(plan.attempt(), 1);
  progress_.state = v1::Job::STATE_UPLOADING;
  actions_.cancel_streams = live_streams_ > 0;
}

void SessionStateMachine::StartIfQuiet(absl::Time now) {
  if (!waiting_.has_value() || live_streams_ > 0 || failed_.has_value()) return;
  const v1::Plan& plan = waiting_->plan;
  lost_ = false;
  worker_error_.reset();
  lost_outputs_.reset();
  stats_.reset();
  seen_.Placed(waiting_->job_id, plan, now);
  progress_.bytes_sent = progress_.bytes_to_send = 0;
  progress_.bytes_received = progress_.bytes_to_receive = 0;
  outputs_missing_ = 0;
  for (const v1::ShardPlan& shard : plan.shards()) {
    const bool sends = shard.input_bytes() > 0, fetches = shard.output_bytes() > 0;
    progress_.bytes_to_send += shard.input_bytes();
    progress_.bytes_to_receive += shard.output_bytes();
    live_streams_ += sends + fetches;
    outputs_missing_ += fetches + (sends && options_.may_be_joined);
  }
  actions_.start = std::move(waiting_);
  waiting_.reset();
}

SessionStateMachine::Actions SessionStateMachine::OnRunJobDone(absl::Status status,
                                                               absl::Time now) {
  run_job_open_ = false;
  if (ended_) return Take();
  if (status.ok() && !succeeded_) {
    status = absl::UnavailableError("the coordinator ended the call before the job ended");
  }
  if (!status.ok()) {
    EndWith(NameExpiry(status, progress_.state <= v1::Job::STATE_QUEUED), now);
  } else {
    // Pooled calls have no deadline, and RunJob has ended, so nothing else enforces the deadline.
    outputs_until_ = options_.deadline;
  }
  return Take();
}

SessionStateMachine::Actions SessionStateMachine::OnStreamDone(int32_t attempt, Stream stream,
                                                               const absl::Status& status,
                                                               absl::Time now) {
  --live_streams_;
  const bool old = attempt != progress_.attempt || !HasAttempt();
  const bool download = stream == Stream::kDownload;
  // A worker ends the uploads of a job that is over. The job's result tells if the inputs were
  // complete.
  const bool decides = CoordinatorDecides(status);
  const bool over = (succeeded_ || unconfirmed_.has_value()) && !download && decides;
  if (!old && !download && status.ok()) seen_.Uploaded(now);
  if (!old && (download || options_.may_be_joined)) {
    if (status.ok()) --outputs_missing_;
    if (!status.ok()) lost_outputs_ = download ? status : EndedForAnotherError();
  }
  if (!status.ok() && !old && !over && !failed_.has_value()) {
    const bool told = !run_job_open_ || unconfirmed_.has_value();
    if (decides && !told) {
      if (!worker_error_.has_value()) worker_error_ = Awaited{{}, now + options_.grace};
      worker_error_->error = WithReason(status, "WORKER_UNREACHABLE");
    } else {
      Fail(decides && unconfirmed_.has_value() ? unconfirmed_->error : NameLoss(status));
    }
  }
  StartIfQuiet(now);
  return Take();
}

SessionStateMachine::Actions SessionStateMachine::OnMoved(Stream stream, int64_t bytes) {
  (stream == Stream::kUpload ? progress_.bytes_sent : progress_.bytes_received) += bytes;
  actions_.tell_progress = !failed_.has_value() && !ended_;
  return Take();
}

void SessionStateMachine::OnReport(int32_t attempt, int32_t rank, const v1::ShardReport& report) {
  if (attempt == progress_.attempt) seen_.Reported(rank, report);
}

SessionStateMachine::Actions SessionStateMachine::OnFailure(const absl::Status& status) {
  Fail(status);
  return Take();
}

absl::Time SessionStateMachine::wake() const {
  if (failed_.has_value() || ended_) return absl::InfiniteFuture();
  if (unconfirmed_.has_value()) return unconfirmed_->until;
  if (!worker_error_.has_value() || !HasAttempt()) return outputs_until_;
  return std::min(outputs_until_, worker_error_->until);
}

SessionStateMachine::Actions SessionStateMachine::OnTime(absl::Time now) {
  if (now < wake()) return Take();
  if (unconfirmed_.has_value()) {
    Fail(unconfirmed_->error);
  } else if (now >= outputs_until_) {
    const auto late = absl::DeadlineExceededError("the outputs did not arrive in time");
    Fail(NameExpiry(late, /*waited=*/false));
  } else {
    Fail(NameLoss(UndecidedError(worker_error_->error)));
  }
  return Take();
}

void SessionStateMachine::Fail(absl::Status status) {
  if (failed_.has_value() || ended_) return;
  failed_ = std::move(status);
  actions_.cancel_run_job = true;
  actions_.cancel_streams = true;
}

absl::Status SessionStateMachine::NameLoss(const absl::Status& error) const {
  // UNAVAILABLE is retried as it is. A deadline is the caller's own.
  const bool over =
      CoordinatorDecides(error) && !absl::IsUnavailable(error) && !absl::IsDeadlineExceeded(error);
  return succeeded_ && options_.may_be_joined && over ? EndedForAnotherError() : error;
}

void SessionStateMachine::EndWith(const absl::Status& error, absl::Time now) {
  if (failed_.has_value() || unconfirmed_.has_value()) return;
  const bool may_come = HasAttempt() && !lost_outputs_.has_value() && options_.outputs_in_memory;
  if (!may_come || !StandsUnconfirmed(*options_.spec, error)) return Fail(error);
  unconfirmed_ = Awaited{error};
  if (absl::IsDeadlineExceeded(error)) {
    actions_.cancel_streams = true;
  } else {
    unconfirmed_->until = now + options_.outputs_grace;
  }
}

void SessionStateMachine::EndIfQuiet() {
  if (ended_ || live_streams_ > 0) return;
  if (!stats_.has_value()) stats_ = seen_.Get();
  // With all rows here and verified, the coordinator can no longer change the answer.
  const bool complete = !failed_.has_value() && HasAllOutputs() && stats_.has_value();
  if (run_job_open_ && (!complete || options_.awaits_end_of_call)) return;
  ended_ = true;
  if (!failed_.has_value() && !HasAllOutputs()) {
    failed_ = NameLoss(lost_outputs_.value_or(OutputsGoneError()));
  }
  End end = {failed_.value_or(absl::OkStatus()), stats_.value_or(seen_.Heard()), {}, false};
  if (!failed_.has_value() && unconfirmed_.has_value()) {
    end.unconfirmed = unconfirmed_->error;
    end.all_reported = stats_.has_value();
  }
  actions_.end = std::move(end);
}

SessionStateMachine::Actions SessionStateMachine::Take() {
  EndIfQuiet();
  return std::exchange(actions_, Actions());
}

}  // namespace annulus

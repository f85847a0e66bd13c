#include "server/coordinator/state/errors.h"

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "proto/wire/cut_text.h"

namespace annulus {
namespace {

// Names may be made up by callers, so they are cut to this length.
constexpr size_t kMaxNameBytes = 64;

using Metadata = std::map<std::string, std::string>;

absl::Status Error(absl::StatusCode code, absl::string_view reason, absl::string_view message,
                   Metadata metadata = {}) {
  return MakeError(code, message, ErrorDetail{std::string(reason), std::move(metadata), {}, {}});
}

absl::Status Retryable(absl::StatusCode code, absl::string_view reason, absl::string_view message,
                       absl::Duration retry_after) {
  return MakeError(code, message, ErrorDetail{std::string(reason), {}, {}, retry_after});
}

absl::Status StateError(absl::StatusCode code, absl::string_view reason, absl::string_view name,
                        absl::string_view description,
                        std::optional<absl::Duration> retry_after = std::nullopt) {
  constexpr char kField[] = "spec.gradients.state";
  return MakeError(code, absl::StrCat(kField, ": ", description),
                   ErrorDetail{std::string(reason),
                               {{"state", CutText(name, kMaxNameBytes)}},
                               {{kField, std::string(description)}},
                               retry_after});
}

}  // namespace

absl::Status NoWorkersError(absl::Duration retry_after) {
  return Retryable(absl::StatusCode::kUnavailable, "NO_WORKERS", "too few workers are ready",
                   retry_after);
}

absl::Status StartingError(absl::Duration retry_after) {
  return Retryable(absl::StatusCode::kUnavailable, "STARTING",
                   "the coordinator has just been restarted and waits for its workers",
                   retry_after);
}

absl::Status DrainingError(absl::Duration retry_after) {
  return Retryable(absl::StatusCode::kUnavailable, "DRAINING", "the coordinator is shutting down",
                   retry_after);
}

absl::Status InsufficientWorkersError(int32_t wanted, int32_t ready) {
  return MakeError(
      absl::StatusCode::kFailedPrecondition,
      absl::StrCat("execution.world_size: ", wanted, " ranks were requested, but ", ready,
                   " workers are ready"),
      ErrorDetail{
          "INSUFFICIENT_WORKERS",
          {{"world_size", absl::StrCat(wanted)}, {"ready_workers", absl::StrCat(ready)}},
          {{"execution.world_size", absl::StrCat("is more than the ", ready, " ready workers")}},
          {}});
}

absl::Status TooFewServersError(int32_t wanted, int32_t servers) {
  const std::string why =
      servers < wanted ? absl::StrCat("only ", servers, " ready workers can run the job")
                       : absl::StrCat("the ", servers,
                                      " ready workers that can run the job are in no common group");
  return MakeError(
      absl::StatusCode::kFailedPrecondition,
      absl::StrCat("execution.world_size: ", wanted, " ranks were requested, but ", why),
      ErrorDetail{"INSUFFICIENT_WORKERS",
                  {{"world_size", absl::StrCat(wanted)}, {"ready_workers", absl::StrCat(servers)}},
                  {{"execution.world_size", why}},
                  {}});
}

absl::Status NotFormedError(int32_t wanted, int32_t servers, const absl::Status& cause) {
  const std::string why = absl::StrCat("no group of ", wanted, " workers could be formed");
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   absl::StrCat("execution.world_size: ", why, ": ", cause.message()),
                   ErrorDetail{"INSUFFICIENT_WORKERS",
                               {{"world_size", absl::StrCat(wanted)},
                                {"ready_workers", absl::StrCat(servers)},
                                {"cause", ReasonOrCode(cause)}},
                               {{"execution.world_size", why}},
                               {}});
}

absl::Status QueueFullError(size_t limit, absl::Duration retry_after) {
  return MakeError(absl::StatusCode::kResourceExhausted,
                   absl::StrCat("the queue has reached its limit of ", limit, " jobs"),
                   ErrorDetail{"QUEUE_FULL", {{"limit", absl::StrCat(limit)}}, {}, retry_after});
}

absl::Status MailboxFullError(size_t limit, absl::Duration retry_after) {
  return MakeError(
      absl::StatusCode::kResourceExhausted,
      absl::StrCat("the coordinator has reached its limit of ", limit, " waiting messages"),
      ErrorDetail{"QUEUE_FULL", {{"limit", absl::StrCat(limit)}}, {}, retry_after});
}

absl::Status KeepersQueueFullError(size_t limit, absl::Duration retry_after) {
  return MakeError(
      absl::StatusCode::kResourceExhausted,
      absl::StrCat("the queue has reached its limit of ", limit, " jobs whose state is to be kept"),
      ErrorDetail{"QUEUE_FULL",
                  {{"limit", absl::StrCat(limit)}},
                  {{"spec.forward.keep_state", "too many jobs with keep_state wait"}},
                  retry_after});
}

absl::Status RequestBytesFullError(int64_t limit, absl::Duration retry_after) {
  return MakeError(
      absl::StatusCode::kResourceExhausted,
      absl::StrCat("the requests of the current jobs have reached their limit of ", limit,
                   " bytes"),
      ErrorDetail{"QUEUE_FULL", {{"limit_bytes", absl::StrCat(limit)}}, {}, retry_after});
}

absl::Status DeadlineUnreachableError(absl::Duration predicted, absl::Duration remaining) {
  const int64_t predicted_ms = absl::ToInt64Milliseconds(predicted);
  const int64_t remaining_ms = absl::ToInt64Milliseconds(remaining);
  return Error(
      absl::StatusCode::kDeadlineExceeded, "DEADLINE_UNREACHABLE",
      absl::StrCat("the job would end in about ", predicted_ms, " ms, but its deadline is in ",
                   remaining_ms, " ms"),
      {{"predicted_ms", absl::StrCat(predicted_ms)}, {"remaining_ms", absl::StrCat(remaining_ms)}});
}

absl::Status JobNotFoundError(absl::string_view job_id) {
  return Error(absl::StatusCode::kNotFound, "JOB_NOT_FOUND", "no such job",
               {{"job_id", CutText(job_id, kMaxNameBytes)}});
}

absl::Status RequestIdReusedError(absl::string_view request_id) {
  return Error(absl::StatusCode::kAlreadyExists, "REQUEST_ID_REUSED",
               "request_id was used for another request",
               {{"request_id", std::string(request_id)}});
}

absl::Status TooManyCallsError(size_t limit, absl::Duration retry_after) {
  return MakeError(
      absl::StatusCode::kResourceExhausted,
      absl::StrCat("the job has reached its limit of ", limit, " calls that follow it"),
      ErrorDetail{"TOO_MANY_CALLS", {{"limit", absl::StrCat(limit)}}, {}, retry_after});
}

absl::Status InvalidPageError(absl::string_view field, absl::string_view description) {
  return InvalidField("INVALID_REQUEST", field, description);
}

absl::Status TooManyStatesError(size_t limit, absl::Duration retry_after) {
  return MakeError(absl::StatusCode::kResourceExhausted,
                   absl::StrCat("the coordinator has reached its limit of ", limit, " kept states"),
                   ErrorDetail{"TOO_MANY_STATES",
                               {{"limit", absl::StrCat(limit)}},
                               {{"spec.forward.keep_state", "no more states can be kept now"}},
                               retry_after});
}

absl::Status StateNotFoundError(absl::string_view name) {
  return StateError(absl::StatusCode::kNotFound, "STATE_NOT_FOUND", name,
                    "no job with this ID keeps its state");
}

absl::Status NoStateToReleaseError(absl::string_view job_id) {
  constexpr char kDescription[] = "keeps no state";
  return MakeError(absl::StatusCode::kNotFound, absl::StrCat("the job ", kDescription),
                   ErrorDetail{"STATE_NOT_FOUND",
                               {{"state", CutText(job_id, kMaxNameBytes)}},
                               {{"job_id", kDescription}},
                               {}});
}

absl::Status StateNotReadyError(absl::string_view name, absl::Duration retry_after) {
  return StateError(absl::StatusCode::kFailedPrecondition, "STATE_NOT_READY", name,
                    "the forward job has not succeeded yet", retry_after);
}

absl::Status StateExpiredError(absl::string_view name) {
  return StateError(absl::StatusCode::kNotFound, "STATE_EXPIRED", name,
                    "the time for which the state was kept has passed");
}

absl::Status StateReleasedError(absl::string_view name) {
  return StateError(absl::StatusCode::kNotFound, "STATE_RELEASED", name,
                    "the state has been released");
}

absl::Status StateLostError(absl::string_view name) {
  return StateError(absl::StatusCode::kNotFound, "STATE_LOST", name,
                    "a worker that kept the state is gone; send all tensors of the job");
}

absl::Status StateNotFormedError(absl::string_view name, const absl::Status& cause) {
  return StateError(absl::StatusCode::kNotFound, "STATE_LOST", name,
                    absl::StrCat("the workers that keep the state cannot form their group (",
                                 cause.message(), "); send all tensors of the job"));
}

absl::Status StateMismatchError(absl::string_view field, absl::string_view description) {
  return InvalidField("STATE_MISMATCH", field, description);
}

absl::Status StateCapacityError(absl::string_view name) {
  return StateError(absl::StatusCode::kFailedPrecondition, "INSUFFICIENT_CAPACITY", name,
                    "a worker that keeps the state has too little memory for its gradients");
}

absl::Status OtherShardsError() {
  return Error(absl::StatusCode::kInternal, "INVALID_PLAN",
               "the plan gives the ranks other rows than the kept state has");
}

absl::Status ExpiredInQueueError() {
  return Error(absl::StatusCode::kDeadlineExceeded, "EXPIRED_IN_QUEUE",
               "the deadline passed while the job waited", {{"state", "QUEUED"}});
}

absl::Status ExpiredRunningError(absl::string_view state) {
  return Error(absl::StatusCode::kDeadlineExceeded, "EXPIRED_RUNNING",
               absl::StrCat("the deadline passed while the job was ", state),
               {{"state", std::string(state)}});
}

absl::Status UploadStalledError() {
  return Error(absl::StatusCode::kDeadlineExceeded, "UPLOAD_STALLED",
               "the shards were not complete by the upload deadline");
}

absl::Status ResultExpiredError() {
  return Error(absl::StatusCode::kNotFound, "RESULT_EXPIRED",
               "the outputs were not fetched while they were kept");
}

absl::Status CancelledByClientError() {
  return Error(absl::StatusCode::kCancelled, "CANCELLED_BY_CLIENT", "the client cancelled the job");
}

absl::Status GroupLostError(absl::Status cause, int32_t attempts, absl::Duration retry_after) {
  ErrorDetail detail = DetailOf(cause);
  detail.metadata["cause"] = ReasonOrCode(cause);
  detail.metadata["attempts"] = absl::StrCat(attempts);
  detail.reason = "GROUP_LOST";
  detail.retry_after = retry_after;
  return MakeError(absl::StatusCode::kAborted,
                   absl::StrCat("the group was lost: ", cause.message()), detail);
}

absl::Status ScheduleMismatchError(absl::string_view what) {
  return Error(absl::StatusCode::kInternal, "SCHEDULE_MISMATCH",
               absl::StrCat("the ranks do not agree: ", what));
}

absl::Status InvalidRegistrationError(absl::string_view what) {
  return Error(absl::StatusCode::kInvalidArgument, "INVALID_REGISTRATION", what);
}

absl::Status IncompatibleWorkerError(absl::string_view what, int64_t theirs, int64_t ours) {
  return Error(
      absl::StatusCode::kFailedPrecondition, "INCOMPATIBLE_WORKER",
      absl::StrCat(what, " ", theirs, " of the worker differs from the coordinator's ", ours),
      {{"what", std::string(what)},
       {"worker", absl::StrCat(theirs)},
       {"coordinator", absl::StrCat(ours)}});
}

absl::Status OtherDeviceError(absl::string_view theirs, absl::string_view other,
                              absl::string_view ours) {
  return Error(
      absl::StatusCode::kFailedPrecondition, "INCOMPATIBLE_WORKER",
      absl::StrCat("it computes on ", theirs, ", but worker ", other, " on ", ours,
                   ": all workers of a coordinator must have the same kind of device (--device)"),
      {{"what", "device_kind"},
       {"worker", std::string(theirs)},
       {"coordinator", std::string(ours)}});
}

absl::Status UnwantedDeviceError(absl::string_view theirs, absl::string_view wanted) {
  return Error(
      absl::StatusCode::kFailedPrecondition, "INCOMPATIBLE_WORKER",
      absl::StrCat("it computes on ", theirs, ", but the coordinator accepts only workers on ",
                   wanted, " (its --device-kind)"),
      {{"what", "device_kind"},
       {"worker", std::string(theirs)},
       {"coordinator", std::string(wanted)}});
}

absl::Status LeaseExpiredError(absl::string_view slot) {
  return Error(absl::StatusCode::kAborted, "LEASE_EXPIRED",
               "this incarnation of the worker is considered lost", {{"slot", std::string(slot)}});
}

absl::Status SlotTakenError(absl::string_view slot) {
  return Error(absl::StatusCode::kFailedPrecondition, "SLOT_TAKEN",
               absl::StrCat("a newer process holds the slot ", slot),
               {{"slot", std::string(slot)}});
}

absl::Status StaleTermError(int64_t term) {
  return Error(absl::StatusCode::kAborted, "STALE_TERM", "a higher term has begun",
               {{"term", absl::StrCat(term)}});
}

absl::Status TooManyWorkersError(size_t limit) {
  return Error(absl::StatusCode::kResourceExhausted, "TOO_MANY_WORKERS",
               absl::StrCat("the coordinator serves at most ", limit, " workers"),
               {{"limit", absl::StrCat(limit)}});
}

absl::Status ProtocolError(absl::string_view what) {
  return Error(absl::StatusCode::kUnavailable, "STREAM_SEQUENCE", what);
}

absl::Status WorkerLostError(absl::string_view slot, absl::string_view cause) {
  return Error(absl::StatusCode::kAborted, "WORKER_LOST",
               absl::StrCat("worker ", slot, " was lost: ", cause),
               {{"slot", std::string(slot)}, {"lost", std::string(cause)}});
}

}  // namespace annulus

#include "client/transport/session_errors.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/error.h"

namespace annulus {

bool CoordinatorDecides(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kDeadlineExceeded:
      return true;
    // A new worker at the same address has another key.
    case absl::StatusCode::kPermissionDenied:
      return DetailOf(status).reason == "BAD_TICKET";
    default:
      return false;
  }
}

absl::Status WithReason(const absl::Status& status, absl::string_view reason) {
  ErrorDetail detail = DetailOf(status);
  if (!detail.reason.empty()) return status;
  detail.reason = std::string(reason);
  return MakeError(status.code(), status.message(), detail);
}

absl::Status NameExpiry(const absl::Status& status, bool waited) {
  if (status.code() != absl::StatusCode::kDeadlineExceeded) return status;
  return WithReason(status, waited ? "EXPIRED_IN_QUEUE" : "EXPIRED_RUNNING");
}

absl::Status UndecidedError(const absl::Status& status) {
  if (absl::IsDeadlineExceeded(status)) return status;
  ErrorDetail detail = DetailOf(status);
  // UNAVAILABLE is retried anyway, with a growing delay.
  if (!detail.retry_after.has_value() && !absl::IsUnavailable(status)) {
    detail.retry_after = absl::Milliseconds(100);
  }
  return MakeError(
      status.code(),
      absl::StrCat(status.message(), "; the coordinator did not report how the job ended"), detail);
}

absl::Status SendAgainError() {
  return MakeError(absl::StatusCode::kAborted, "a worker was lost; send the job again",
                   {"GROUP_LOST", {}, {}, absl::Milliseconds(100)});
}

absl::Status OutputsGoneError() {
  return MakeError(absl::StatusCode::kAborted, "the job ended before its outputs were fetched",
                   {"JOB_ENDED", {}, {}, {}});
}

absl::Status EndedForAnotherError() {
  return MakeError(absl::StatusCode::kAborted,
                   "the job ended for another call with the same request_id before the inputs of "
                   "this call were compared and its outputs fetched; send the job again",
                   {"JOB_ENDED", {}, {}, absl::Milliseconds(100)});
}

absl::Status AnswerLostError(const absl::Status& status, const absl::Status& earlier) {
  ErrorDetail detail = DetailOf(status);
  detail.metadata["earlier_attempt"] = ErrorText(earlier);
  return MakeError(
      status.code(),
      absl::StrCat(
          status.message(), ", perhaps by an earlier attempt of this job, whose answer was lost (",
          ErrorText(earlier), "): state and answer are lost; send the job with all its tensors"),
      detail);
}

absl::Status OutOfTurnError(bool accepted) {
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("a chunk arrived ", accepted ? "after the end of the inputs"
                                                             : "before the job was accepted"),
                   {"STREAM_SEQUENCE", {}, {}, {}});
}

absl::Status MissingRowsError(int64_t bytes_missing, const std::vector<TensorId>& tensors) {
  ErrorDetail detail;
  detail.reason = "MISSING_ROWS";
  std::vector<std::string> names;
  for (const TensorId tensor : tensors) {
    names.emplace_back(TensorName(tensor));
    detail.fields.push_back({names.back(), "rows are missing"});
  }
  return MakeError(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("the inputs ended with ", bytes_missing, " bytes missing: rows of ",
                                absl::StrJoin(names, ", "), " are missing"),
                   detail);
}

}  // namespace annulus

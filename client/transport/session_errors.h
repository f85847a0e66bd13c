#ifndef ANNULUS_CLIENT_TRANSPORT_SESSION_ERRORS_H_
#define ANNULUS_CLIENT_TRANSPORT_SESSION_ERRORS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "attention/spec/tensor_table.h"

namespace annulus {

// True if the coordinator decides what this error of a worker's stream means: perhaps only the
// worker or the attempt is gone, or a new worker has taken its place. Codes: UNAVAILABLE, ABORTED,
// CANCELLED, NOT_FOUND, DEADLINE_EXCEEDED, and PERMISSION_DENIED / BAD_TICKET. Any other error is
// the job's error.
bool CoordinatorDecides(const absl::Status& status);

// Adds `reason` to a status without one (made by the gRPC library).
absl::Status WithReason(const absl::Status& status, absl::string_view reason);

// Adds the reason to a DEADLINE_EXCEEDED of RunJob: EXPIRED_IN_QUEUE if the job waited, else
// EXPIRED_RUNNING. Returns other errors unchanged.
absl::Status NameExpiry(const absl::Status& status, bool waited);

// The error of a worker's stream on which the coordinator has not decided in time. It gets a retry
// delay of 0.1 s if it has none; not UNAVAILABLE, which is retried anyway, and not
// DEADLINE_EXCEEDED, which is the caller's own deadline.
absl::Status UndecidedError(const absl::Status& status);

// ABORTED / GROUP_LOST, retry after 0.1 s: a worker was lost, and the pushed inputs are gone.
absl::Status SendAgainError();
// ABORTED / JOB_ENDED: the job has succeeded, but its outputs are not here.
absl::Status OutputsGoneError();
// ABORTED / JOB_ENDED, retry after 0.1 s: the job has ended for another call with the same
// request_id, and its outputs may be no answer to this call.
absl::Status EndedForAnotherError();
// NOT_FOUND / STATE_RELEASED, made from `status`. The job was sent before to release that state and
// ended with `earlier`; it may have released the state itself.
absl::Status AnswerLostError(const absl::Status& status, const absl::Status& earlier);
// INVALID_ARGUMENT / STREAM_SEQUENCE: a chunk came after the end of the inputs (`accepted`) or
// before the job was accepted.
absl::Status OutOfTurnError(bool accepted);
// INVALID_ARGUMENT / MISSING_ROWS: the inputs ended before all rows of `tensors` were pushed.
absl::Status MissingRowsError(int64_t bytes_missing, const std::vector<TensorId>& tensors);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_TRANSPORT_SESSION_ERRORS_H_

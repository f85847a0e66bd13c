#ifndef ANNULUS_CLIENT_TRANSPORT_SESSION_ERRORS_H_
#define ANNULUS_CLIENT_TRANSPORT_SESSION_ERRORS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "attention/spec/tensor_table.h"

namespace annulus {

// Whether an error of a worker's stream may only mean that the worker, or the attempt, is gone, or
// that the worker is new: then the coordinator knows what becomes of the job. Any other error is
// the answer.
bool CoordinatorDecides(const absl::Status& status);

// The status with `reason` where it has none: statuses that the gRPC library makes by itself.
absl::Status WithReason(const absl::Status& status, absl::string_view reason);

// DEADLINE_EXCEEDED of RunJob by its right name: EXPIRED_IN_QUEUE of a job that waited, else
// EXPIRED_RUNNING.
absl::Status NameExpiry(const absl::Status& status, bool waited);

// The error of a worker's stream of which the coordinator was to decide and has said nothing: to be
// sent again, unless it is a deadline, which is the caller's own.
absl::Status UndecidedError(const absl::Status& status);

// ABORTED / GROUP_LOST: a worker was lost, and the inputs that were pushed are gone.
absl::Status SendAgainError();
// ABORTED / JOB_ENDED: the job succeeded, and its outputs are not here.
absl::Status OutputsGoneError();
// ABORTED / JOB_ENDED, to be sent again: so did it, for another call with its request id.
absl::Status EndedForAnotherError();
// NOT_FOUND / STATE_RELEASED, as `status` says it, of a job that was sent before, to release that
// state, and ended with `earlier`: it may have been the one that did.
absl::Status AnswerLostError(const absl::Status& status, const absl::Status& earlier);
// INVALID_ARGUMENT / STREAM_SEQUENCE: a chunk came before the job was accepted, or when the inputs
// had ended.
absl::Status OutOfTurnError(bool accepted);
// INVALID_ARGUMENT / MISSING_ROWS: the inputs ended before all rows of these tensors had come.
absl::Status MissingRowsError(int64_t bytes_missing, const std::vector<TensorId>& tensors);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_TRANSPORT_SESSION_ERRORS_H_

#ifndef ANNULUS_SERVER_COORDINATOR_STATE_ERRORS_H_
#define ANNULUS_SERVER_COORDINATOR_STATE_ERRORS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace annulus {

// All errors that the coordinator itself returns: code, reason and metadata in one place
// (docs/reference/errors.md lists them). These functions take no decision.

// Errors of clients, at submission.

absl::Status NoWorkersError(absl::Duration retry_after);
absl::Status StartingError(absl::Duration retry_after);
absl::Status DrainingError(absl::Duration retry_after);
absl::Status InsufficientWorkersError(int32_t wanted, int32_t ready);
// INSUFFICIENT_WORKERS if some ready workers do not serve the job; `servers` do.
absl::Status TooFewServersError(int32_t wanted, int32_t servers);
// INSUFFICIENT_WORKERS if enough workers serve the job and their groups cannot be formed.
absl::Status NotFormedError(int32_t wanted, int32_t servers, const absl::Status& cause);
absl::Status QueueFullError(size_t limit, absl::Duration retry_after);
// Too many messages of clients, or of workers, wait for the coordinator.
absl::Status MailboxFullError(size_t limit, absl::Duration retry_after);
absl::Status KeepersQueueFullError(size_t limit, absl::Duration retry_after);
absl::Status TooManyStatesError(size_t limit, absl::Duration retry_after);
absl::Status RequestBytesFullError(int64_t limit, absl::Duration retry_after);
absl::Status DeadlineUnreachableError(absl::Duration predicted, absl::Duration remaining);
absl::Status JobNotFoundError(absl::string_view job_id);
absl::Status RequestIdReusedError(absl::string_view request_id);
absl::Status TooManyCallsError(size_t limit, absl::Duration retry_after);
absl::Status InvalidPageError(absl::string_view field, absl::string_view description);

// Errors of states that forward jobs keep, at spec.gradients.state.

absl::Status StateNotFoundError(absl::string_view name);
absl::Status NoStateToReleaseError(absl::string_view job_id);
absl::Status StateNotReadyError(absl::string_view name, absl::Duration retry_after);
absl::Status StateExpiredError(absl::string_view name);
absl::Status StateReleasedError(absl::string_view name);
absl::Status StateLostError(absl::string_view name);
// STATE_LOST if the state's workers are present and cannot form their group.
absl::Status StateNotFormedError(absl::string_view name, const absl::Status& cause);
// `field` is the field of the gradients job that differs.
absl::Status StateMismatchError(absl::string_view field, absl::string_view description);
// INTERNAL / INVALID_PLAN: the mismatch is the fault of the service.
absl::Status OtherShardsError();
absl::Status StateCapacityError(absl::string_view name);

// Errors that end jobs.

absl::Status ExpiredInQueueError();
absl::Status ExpiredRunningError(absl::string_view state);
absl::Status UploadStalledError();
absl::Status ResultExpiredError();
absl::Status CancelledByClientError();
absl::Status GroupLostError(absl::Status cause, int32_t attempts, absl::Duration retry_after);
absl::Status ScheduleMismatchError(absl::string_view what);

// Errors of workers, and reasons of the loss of workers and groups. Kinds of devices are words: "a
// CPU".

absl::Status InvalidRegistrationError(absl::string_view what);
absl::Status IncompatibleWorkerError(absl::string_view what, int64_t theirs, int64_t ours);
// The worker's kind differs from that of the worker in slot `other`.
absl::Status OtherDeviceError(absl::string_view theirs, absl::string_view other,
                              absl::string_view ours);
// The worker's kind differs from the operator's choice.
absl::Status UnwantedDeviceError(absl::string_view theirs, absl::string_view wanted);
absl::Status LeaseExpiredError(absl::string_view slot);
absl::Status SlotTakenError(absl::string_view slot);
absl::Status StaleTermError(int64_t term);
absl::Status TooManyWorkersError(size_t limit);
// The stream ends, and the worker connects again.
absl::Status ProtocolError(absl::string_view what);
absl::Status WorkerLostError(absl::string_view slot, absl::string_view cause);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_ERRORS_H_

#ifndef ANNULUS_SERVER_COORDINATOR_STATE_SUBMISSION_H_
#define ANNULUS_SERVER_COORDINATOR_STATE_SUBMISSION_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "annulus/v1/jobs.pb.h"
#include "attention/spec/spec.h"
#include "attention/validate/validate.h"
#include "server/coordinator/state/coordinator_options.h"
#include "server/coordinator/state/plan_shape.h"

namespace annulus {

// The principal of every call, until callers are authenticated.
inline constexpr char kAnonymous[] = "anonymous";

// A validated request to run or to plan a job: the original message and its meaning. Immutable.
struct Submission {
  v1::RunJobRequest request;
  AttentionSpec spec;
  Execution execution;
  // request.spec() as bytes. Commands to workers share them.
  std::shared_ptr<const std::string> spec_bytes;
  // Features of the capability table that it uses.
  std::set<std::string> features;
  PlanShape shape;
  // Approximate memory that it takes.
  int64_t bytes = 0;
  // SHA-256 of the content that identifies the job, see SameJob. Empty without a request_id, as
  // only jobs with one are compared.
  std::string fingerprint;
  // SHA-256 of the content in which a forward job that keeps its state and a gradients job that
  // uses it must agree. Empty for other jobs.
  std::string state_fingerprint;
};

// Converts and validates a request. Called where the request arrives, before the state machine gets
// it. INVALID_ARGUMENT, in this order:
// - UNKNOWN_FIELD;
// - INVALID_REQUEST for a request_id, timeout or result_ttl out of range, or a result_ttl of a job
//   that is not detached;
// - those of SpecFromProto and ExecutionFromProto (proto/wire/convert.h);
// - those of Validate() (attention/validate/validate.h), and UNIMPLEMENTED / NOT_SERVED.
absl::StatusOr<std::shared_ptr<const Submission>> MakeSubmission(v1::RunJobRequest request,
                                                                 const CoordinatorOptions& options);

// True if two requests with a request_id ask for the same job: equal except for the fields of the
// call alone (timeout, single_attempt, result_ttl, quiet). Takes no time, however long the specs
// are.
bool SameJob(const Submission& a, const Submission& b);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_SUBMISSION_H_

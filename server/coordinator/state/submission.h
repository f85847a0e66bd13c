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

// A validated request to run or to plan a job: the message as it came and what it means. Immutable.
struct Submission {
  v1::RunJobRequest request;
  AttentionSpec spec;
  Execution execution;
  // request.spec() as bytes, which commands to workers share.
  std::shared_ptr<const std::string> spec_bytes;
  // Of the capability table, that it uses.
  std::set<std::string> features;
  PlanShape shape;
  // Memory that it takes, about.
  int64_t bytes = 0;
  // SHA-256 of what makes it this job and no other, see SameJob; empty without a request_id, by
  // which alone jobs are compared.
  std::string fingerprint;
  // SHA-256 of what a forward job whose state is kept and a gradients job that uses it must agree
  // in; empty for others.
  std::string state_fingerprint;
};

// Translates and validates; called where the request arrives, before the state machine sees it.
// Errors: those of Validate(), and INVALID_ARGUMENT / INVALID_REQUEST for a request_id, timeout or
// result_ttl out of range, or a result_ttl of a job that is not detached.
absl::StatusOr<std::shared_ptr<const Submission>> MakeSubmission(v1::RunJobRequest request,
                                                                 const CoordinatorOptions& options);

// Whether two requests with a request_id ask for the same job: equal but for what belongs to the
// call alone (timeout, single_attempt, result_ttl, quiet). Takes no time, however long the specs
// are.
bool SameJob(const Submission& a, const Submission& b);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_SUBMISSION_H_

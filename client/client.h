#ifndef ANNULUS_CLIENT_CLIENT_H_
#define ANNULUS_CLIENT_CLIENT_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "annulus/v1/attention.pb.h"
#include "annulus/v1/jobs.pb.h"
#include "attention/spec/spec.h"
#include "client/attend.h"
#include "client/transport/raw_stream.h"
#include "grpcpp/security/credentials.h"

namespace annulus {

struct ClientOptions {
  std::string address = "127.0.0.1:8001";                 // host:port of the coordinator.
  std::shared_ptr<grpc::ChannelCredentials> credentials;  // Null: an insecure channel.
  Metadata metadata;  // Sent with every call, also with calls to workers.
  // Deadline of jobs that set none. Every job has a deadline.
  absl::Duration default_timeout = absl::Minutes(10);
  // kAuto: the search for connections to the workers takes at most connect_timeout. Zero: no
  // search, kGateway. A result older than reachability_age starts a new search and still serves
  // meanwhile.
  absl::Duration connect_timeout = absl::Seconds(1);
  absl::Duration reachability_age = absl::Seconds(30);
};

// A client of one coordinator. Thread-safe. Errors are absl::Status; DetailOf() of base/error.h has
// the reason, the fields at fault and the retry delay. docs/reference/errors.md lists all reasons.
//
//   ClientOptions options;
//   options.address = "coordinator:8001";
//   Client client(options);
//   AttendArguments job;
//   job.spec = spec;  // dtype, heads, head_dim and sequences.
//   job.inputs[TensorId::kQ] = absl::MakeConstSpan(q);  // q is a std::vector<std::byte>.
//   job.inputs[TensorId::kK] = absl::MakeConstSpan(k);
//   job.inputs[TensorId::kV] = absl::MakeConstSpan(v);
//   job.outputs[TensorId::kOut] = absl::MakeSpan(out);
//   ASSIGN_OR_RETURN(AttendResult result, client.Attend(std::move(job)));
//
// A call that breaks is retried only where the method says so. Methods that wait must not be called
// from callbacks (`done`, `progress`, `placed`).
class Client {
 public:
  // Does not connect; the first call does.
  explicit Client(ClientOptions options);
  // Cancels running jobs and waits for their end, then up to 1 s for their RunJob calls. Must not
  // run in a callback.
  ~Client();

  // Runs a job and waits for its end. Retries: see AttendArguments::max_attempts. The error of the
  // last attempt has `attempts` and `earlier_attempt` in its metadata.
  // Errors before any call, in this order: INVALID_ARGUMENT / INVALID_REQUEST (max_attempts); those
  // of Validate() (attention/validate/validate.h); INVALID_ARGUMENT / INVALID_REQUEST
  // (upload_without_state without a state); INVALID_ARGUMENT / MISSING_TENSOR,
  // TENSOR_BYTES_MISMATCH, UNKNOWN_TENSOR. Then the errors of RunJob (proto/annulus/v1/jobs.proto)
  // and DataPlane, or of Attend, with their details; INTERNAL (INVALID_PLAN, UNEXPECTED_OUTPUT,
  // INCOMPLETE_OUTPUT) and DATA_LOSS / CHECKSUM_MISMATCH for wrong data from the service.
  absl::StatusOr<AttendResult> Attend(AttendArguments arguments);

  // Attend() with spec.operation set to kGradients. Requires: spec.forward is empty.
  // - Inputs, without a state: q, k, v, the output and LSE of the forward job, d_out, and d_lse if
  //   spec.gradients.d_lse is set; all that TensorTable() lists.
  // - Inputs, with spec.gradients.state: d_out and d_lse only.
  // - Outputs: dq, dk and dv; d_sink of each row if the spec has sinks; d_bias if
  //   spec.gradients.d_bias is set.
  absl::StatusOr<AttendResult> Gradients(AttendArguments arguments);

  // See AttendCallHandle (client/attend.h).
  using Call = AttendCallHandle;
  // Starts a job and does not block. `done` is called once, on the client's callback thread, when
  // the memory of the arguments is no longer in use. It must not wait for another job of this
  // client. Set spec.operation for gradients. Retries and errors: see Attend().
  std::shared_ptr<Call> AttendAsync(AttendArguments arguments,
                                    std::function<void(absl::StatusOr<AttendResult>)> done);

  // The job with this id; its spec is present until the job has ended, or while its state is kept.
  // NOT_FOUND / JOB_NOT_FOUND. Here and below, `timeout` zero is 10 s, retries included, and every
  // call waits.
  absl::StatusOr<v1::Job> GetJob(const std::string& job_id,
                                 absl::Duration timeout = absl::ZeroDuration());
  // Cancels a job, also one of other callers. Returns the job; a job that has ended is unchanged.
  // Idempotent; retried like Attend(), at most 4 sends. NOT_FOUND / JOB_NOT_FOUND.
  absl::StatusOr<v1::Job> CancelJob(const std::string& job_id,
                                    absl::Duration timeout = absl::ZeroDuration());
  // Releases the state of a forward job with spec.forward.keep_state. `job_id` is
  // AttendResult::stats.job_id() of that job. Idempotent: releasing a released state returns the
  // same job. Retried like Attend(), at most 4 sends. NOT_FOUND: JOB_NOT_FOUND if the coordinator
  // no longer has the job, STATE_NOT_FOUND if it keeps no state.
  absl::StatusOr<v1::Job> ReleaseState(const std::string& job_id,
                                       absl::Duration timeout = absl::ZeroDuration());

  // Dry run: the plan that a job of this spec would get now. Errors: those of Attend() for the spec
  // and the state; UNAVAILABLE (NO_WORKERS, DRAINING, STARTING); RESOURCE_EXHAUSTED / QUEUE_FULL.
  absl::StatusOr<v1::Plan> Plan(const AttentionSpec& spec, const Execution& execution,
                                absl::Duration timeout = absl::ZeroDuration());
  // Version, limits, workers and capabilities. UNAVAILABLE / DRAINING, RESOURCE_EXHAUSTED /
  // QUEUE_FULL.
  absl::StatusOr<v1::ServerInfo> GetServerInfo(absl::Duration timeout = absl::ZeroDuration());
  // Merges 1 to 256 finished partials of the same rows over disjoint keys, with at most
  // kMaxMergeNumbers numbers in all. Larger tensors: split by rows or heads
  // (client/cli/files/merge_files.h). Retried like Attend(), at most 4 sends. Errors: those of
  // Attention.MergePartials (proto/annulus/v1/attention.proto).
  absl::StatusOr<v1::Partial> MergePartials(const v1::MergePartialsRequest& request,
                                            absl::Duration timeout = absl::ZeroDuration());
  // One page of jobs, newest first. INVALID_ARGUMENT / INVALID_REQUEST for a wrong page size or
  // token.
  absl::StatusOr<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest& request,
                                                absl::Duration timeout = absl::ZeroDuration());

 private:
  class Impl;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLIENT_H_

#ifndef ANNULUS_CLIENT_CLIENT_H_
#define ANNULUS_CLIENT_CLIENT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "annulus/v1/attention.pb.h"
#include "annulus/v1/jobs.pb.h"
#include "attention/spec/spec.h"
#include "attention/spec/tensor_table.h"
#include "client/session/job_session.h"
#include "client/transport/raw_stream.h"
#include "grpcpp/security/credentials.h"

namespace annulus {

// How tensors travel. Direct: between this process and the workers. Gateway: all through one
// address. Auto: direct where a connection to every worker can be made, else the gateway.
enum class DataPath { kAuto, kDirect, kGateway };

struct ClientOptions {
  std::string address = "127.0.0.1:8001";                 // Of the coordinator.
  std::shared_ptr<grpc::ChannelCredentials> credentials;  // Null: none.
  Metadata metadata;  // Sent with every call, those to workers included.
  // Of a call that names none: no call is without a deadline.
  absl::Duration default_timeout = absl::Minutes(10);
  // How long Auto looks for connections to the workers (zero: not at all, and takes the gateway),
  // and how long the answer holds; then it is looked for again while the old one serves.
  absl::Duration connect_timeout = absl::Seconds(1);
  absl::Duration reachability_age = absl::Seconds(30);
};

// One job. Tensors are packed rows [rows, heads, dim] as TensorTable(spec) lists them.
struct AttendArguments {
  AttentionSpec spec;
  Execution execution;
  // Every input of the spec, of exactly its size: unchanged until the job has ended.
  std::map<TensorId, absl::Span<const std::byte>> inputs;
  // Outputs that are wanted, of exactly their size: written until the job has ended; of a job that
  // failed they hold anything.
  std::map<TensorId, absl::Span<std::byte>> outputs;
  DataPath path = DataPath::kAuto;
  // From now to the end, retries included; zero: the client's default.
  absl::Duration timeout;
  // Maximum number of sends, at least 1. Resending a small job because a kept call turned out to be
  // closed does not count. Sent again: ABORTED / GROUP_LOST, UNAVAILABLE, and errors that name a
  // delay (RetryInfo), after that delay or a growing one, while the deadline allows.
  int max_attempts = 4;
  // See RunJobRequest.
  std::string request_id;
  // Of gradients by a state (spec.gradients.state): `inputs` are those of the same job without one,
  // of which only what the state lacks is sent; and where the state is gone (NOT_FOUND with
  // STATE_LOST, STATE_EXPIRED, STATE_RELEASED or STATE_NOT_FOUND) the job is sent again, without it
  // and with all of them. AttendResult says so.
  bool upload_without_state = false;
  // Called from threads of the client; must not wait.
  std::function<void(const JobProgress&)> progress;
  std::function<void(const std::string& job_id, const v1::Plan&)> placed;
};

struct AttendResult {
  v1::JobStats stats;
  v1::Plan plan;  // Of the run that counted.
  DataPath path = DataPath::kAuto;
  int attempts = 0;  // Sends.
  // Why the state that the job named was not used (STATE_LOST …), and everything was sent; else
  // empty.
  std::string state_gone;
  // Of a job with spec.gradients.release_state: the error that its job, or the call, ended with
  // when every row of every output had come, was checked and is in its place. Whether the state is
  // released, and request_id free, is not known: ReleaseState and GetJob tell. Else empty.
  std::string release_unconfirmed;
  // Then, where not every worker has said what its part took (through the gateway: none): `running`
  // and `exposed_communication` are those of the slowest that has, 0 where none has, and
  // `bytes_sent_per_rank` is 0 for the others, or empty.
  bool stats_partial = false;
};

// A client of one coordinator. Thread-safe. The destructor cancels what is under way and waits for
// its end.
class Client {
 public:
  // Connects at the first call.
  explicit Client(ClientOptions options);
  ~Client();

  // Waits for the end. Errors: INVALID_ARGUMENT of the arguments or the sizes (MISSING_TENSOR,
  // TENSOR_BYTES_MISMATCH, UNKNOWN_TENSOR) before any call; then the service's, details kept. Not
  // to be called from a callback.
  absl::StatusOr<AttendResult> Attend(AttendArguments arguments);

  // The same with the operation of the spec, whose forward options must be empty, set to gradients:
  // inputs as TensorTable() lists them, the output and LSE of a forward job among them (and D_LSE
  // where spec.gradients.d_lse says so), or with spec.gradients.state D_OUT and D_LSE alone;
  // outputs dq, dk and dv, d_sink of each row where there are sinks, and d_bias where
  // spec.gradients.d_bias asks for it.
  absl::StatusOr<AttendResult> Gradients(AttendArguments arguments);

  // A job under way. Dropping it leaves the job alone.
  class Call {
   public:
    virtual ~Call() = default;
    // Asks for the end, which `done` tells as CANCELLED unless the job was faster. Never waits.
    virtual void Cancel() = 0;
  };
  // Does not wait. `done` is called once, from the client's callback thread, when no memory of the
  // arguments is in use any more; it must not wait for another job of this client.
  std::shared_ptr<Call> AttendAsync(AttendArguments arguments,
                                    std::function<void(absl::StatusOr<AttendResult>)> done);

  // A job that the service knows; its spec while it has not ended, or its state is kept. `timeout`
  // zero, here and below: 10 s.
  absl::StatusOr<v1::Job> GetJob(const std::string& job_id,
                                 absl::Duration timeout = absl::ZeroDuration());
  // Ends a job, whoever waits for it; one that has ended stays as it is. Made again as Attend is.
  absl::StatusOr<v1::Job> CancelJob(const std::string& job_id,
                                    absl::Duration timeout = absl::ZeroDuration());
  // Lets go of the state of a forward job with spec.forward.keep_state (its name is the job_id of
  // its stats). Made again as Attend is, up to 4 times: who has released a state and lost the
  // answer hears the same again. NOT_FOUND where nobody knows the job any more.
  absl::StatusOr<v1::Job> ReleaseState(const std::string& job_id,
                                       absl::Duration timeout = absl::ZeroDuration());

  // What would be done.
  absl::StatusOr<v1::Plan> Plan(const AttentionSpec& spec, const Execution& execution,
                                absl::Duration timeout = absl::ZeroDuration());
  absl::StatusOr<v1::ServerInfo> GetServerInfo(absl::Duration timeout = absl::ZeroDuration());
  // Joins finished partials (docs/reference/calls.md); one call, so at most kMaxMergeNumbers
  // numbers. What exceeds it is cut by rows or heads (client/cli/files/merge_files.h). Made again
  // as Attend is, up to 4 times.
  absl::StatusOr<v1::Partial> MergePartials(const v1::MergePartialsRequest& request,
                                            absl::Duration timeout = absl::ZeroDuration());
  absl::StatusOr<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest& request,
                                                absl::Duration timeout = absl::ZeroDuration());

 private:
  class Impl;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLIENT_H_

#ifndef ANNULUS_CLIENT_SESSION_JOB_SESSION_H_
#define ANNULUS_CLIENT_SESSION_JOB_SESSION_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "annulus/v1/jobs.pb.h"
#include "attention/spec/spec.h"
#include "client/session/job_progress.h"
#include "client/session/run_job_call.h"
#include "client/transport/chunk_writer.h"
#include "client/transport/stream_pool.h"
#include "client/transport/tensor_memory.h"

namespace annulus {

// What a session tells. Calls come one at a time, from threads of gRPC or of whoever calls the
// session, and must not wait. The observer lives until OnDone has returned.
class JobObserver {
 public:
  virtual ~JobObserver() = default;
  // The plan of a new attempt. Inputs may be pushed from now on.
  virtual void OnPlaced(const std::string& job_id, const v1::Plan& plan) = 0;
  virtual void OnProgress(const JobProgress& progress) = 0;
  // Without output memory: checked chunks of the caller's rows with their CRCs. The worker that
  // they come from goes on when `credit` is dropped: at most one message of 1 MiB for each rank is
  // out at a time.
  virtual void OnOutput(std::vector<TensorChunk> chunks, Credit credit) = 0;
  // Before OnDone with OK, of a job that was to release a state, or to keep its own, and has not
  // said that it did: it, or its call, ended with `why` when every output was on its way. The stats
  // lack what those workers took that have not reported, unless all have.
  virtual void OnUnconfirmed(const absl::Status& /*why*/, bool /*all_reported*/) {}
  // Last, once. OK: every output has been delivered and checked.
  virtual void OnDone(const absl::Status& status, const v1::JobStats& stats) = 0;
};

struct JobOptions {
  RunJobStarter run_job;
  // A channel to a worker's endpoint.
  std::function<std::shared_ptr<grpc::Channel>(const std::string& endpoint)> worker_channel;
  // Calls for small shards; nullptr: each shard has calls of its own.
  std::shared_ptr<StreamPool> exchanges;
  Metadata metadata;  // Of other calls to workers; exchanges have the pool's.
  absl::Time deadline = absl::InfiniteFuture();  // By base/steady_time.h.
  // `spec` must be what `request.spec` says.
  v1::RunJobRequest request;
  AttentionSpec spec;
  // Absent: inputs are pushed. Present: all input tensors of the spec.
  std::optional<InputMemory> inputs;
  // Absent: outputs go to the observer.
  std::optional<OutputMemory> outputs;
  // Dropped when the RunJob call has ended too. That may be after OnDone: the outputs are here
  // before the coordinator knows that they are, and a call that is cut short counts as a cancelled
  // job.
  std::shared_ptr<const void> open;
  // How long the coordinator has to notice that a worker is gone before its error ends the job.
  absl::Duration grace = absl::Seconds(6);
  // How long outputs may still come when the coordinator is gone.
  absl::Duration outputs_grace = absl::Seconds(6);
};

// One job by the direct path: RunJob at the coordinator, PutShard and FetchShard, or
// ExchangeShards, at every worker of its plan. Holds no tensor bytes beyond one message for each
// stream. With input memory a job that the coordinator runs again is sent again; with pushed inputs
// it ends with ABORTED / GROUP_LOST, for they are gone. Thread-safe; no method waits. The session
// lives on until its calls have ended also when this handle is dropped.
class JobSession {
 public:
  static std::shared_ptr<JobSession> Start(JobOptions options, JobObserver* observer) {
    std::shared_ptr<JobSession> session = Make(std::move(options), observer);
    session->Run();
    return session;
  }
  // The same in two steps, for an observer that needs the session: its first call may come before
  // Run(), which is to be called once, has returned.
  static std::shared_ptr<JobSession> Make(JobOptions options, JobObserver* observer);
  void Run();

  // Pushed inputs, after OnPlaced: a chunk of the caller's rows, in any order. `credit` is dropped
  // when its bytes have left. A wrong chunk ends the session: INVALID_ARGUMENT with UNKNOWN_TENSOR,
  // CHUNK_OUT_OF_RANGE, TENSOR_BYTES_MISMATCH or STREAM_SEQUENCE; DATA_LOSS / CHECKSUM_MISMATCH.
  void Push(TensorChunk chunk, Credit credit);
  // All has been pushed. Rows that are missing end the session with INVALID_ARGUMENT /
  // MISSING_ROWS.
  void CloseInputs();

  // Ends the session with CANCELLED, or with what the caller has to say, and the job with it.
  void Cancel(absl::Status status = absl::CancelledError("cancelled by the client"));

 private:
  class Impl;
  explicit JobSession(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<Impl> impl_;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_SESSION_JOB_SESSION_H_

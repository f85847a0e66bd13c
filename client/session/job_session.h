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

// One job on the direct path. The steps, with the functions of job_session.cc:
// 1. Run() opens RunJob at the coordinator (StartRunJob()).
// 2. The coordinator places the job. StartStreams() calls OnPlaced(), and StartCalls() opens the
//    calls to each worker of the plan: PutShard and FetchShard, or ExchangeShards for a small shard
//    (client/transport/shard_calls.h).
// 3. Inputs come from JobOptions::inputs, or from Push() (OnPush() cuts each chunk by rank).
// 4. Outputs go through TakeOutputs() to JobOptions::outputs, or to OnOutput().
// 5. End() calls OnUnconfirmed() if needed, and OnDone().
//
// SessionStateMachine decides (a lost worker, a second attempt, the end); Do() performs its
// actions. A Strand serialises both, with all calls of the observer. Only the bytes of tensors are
// handled outside of it: Push() verifies CRCs on the caller's thread, TakeOutputs() copies rows on
// threads of gRPC.

// Callbacks of a session. They come one at a time, on threads of gRPC or on the thread that calls
// the session, and must not block. The observer must live until OnDone() has returned.
class JobObserver {
 public:
  virtual ~JobObserver() = default;
  // The plan of a new attempt. Inputs may be pushed from now on.
  virtual void OnPlaced(const std::string& job_id, const v1::Plan& plan) = 0;
  virtual void OnProgress(const JobProgress& progress) = 0;
  // Only without output memory. Verified chunks of the caller's rows, with their CRCs. Flow
  // control: the worker sends its next message when `credit` is dropped, so that each rank has at
  // most one message of 1 MiB in flight.
  virtual void OnOutput(std::vector<TensorChunk> chunks, Credit credit) = 0;
  // Called before OnDone() with OK if the job was to release a state, or to keep its own, and that
  // was not confirmed: the job or its call ended with `why`, but all rows have arrived. If
  // `all_reported` is false, the stats lack the part of each worker that has not reported.
  virtual void OnUnconfirmed(const absl::Status& /*why*/, bool /*all_reported*/) {}
  // The last call, once. OK: every output has been delivered and verified.
  virtual void OnDone(const absl::Status& status, const v1::JobStats& stats) = 0;
};

struct JobOptions {
  RunJobStarter run_job;
  // Returns a channel to a worker's endpoint.
  std::function<std::shared_ptr<grpc::Channel>(const std::string& endpoint)> worker_channel;
  // Pooled calls for small shards. Null: each shard has its own calls.
  std::shared_ptr<StreamPool> exchanges;
  Metadata metadata;  // For calls to workers other than exchanges, which have the pool's.
  absl::Time deadline = absl::InfiniteFuture();  // On the clock of base/steady_time.h.
  // `spec` must equal `request.spec`.
  v1::RunJobRequest request;
  AttentionSpec spec;
  // Absent: inputs are pushed. Present: all input tensors of the spec.
  std::optional<InputMemory> inputs;
  // Absent: outputs go to the observer.
  std::optional<OutputMemory> outputs;
  // A token that is dropped when the RunJob call has ended. This may be after OnDone(): all outputs
  // can be here before the coordinator ends the call. Do not break off the call before: this counts
  // as a cancelled job.
  std::shared_ptr<const void> open;
  // After a worker's stream has broken, the coordinator has this time to place the job again or to
  // end it. Then the stream's error ends the session.
  absl::Duration grace = absl::Seconds(6);
  // After the job or RunJob has ended with an error, outputs may still arrive for this time, if
  // StandsUnconfirmed() (client/session/state_handoff.h).
  absl::Duration outputs_grace = absl::Seconds(6);
};

// One job on the direct path; see the top of this file. Holds at most one message of tensor bytes
// for each stream. If the coordinator runs the job again, a session with input and output memory
// sends everything again; any other session ends with ABORTED / GROUP_LOST. Thread-safe; no method
// blocks. The session lives until its calls have ended, even if this handle is destroyed before.
class JobSession {
 public:
  static std::shared_ptr<JobSession> Start(JobOptions options, JobObserver* observer) {
    std::shared_ptr<JobSession> session = Make(std::move(options), observer);
    session->Run();
    return session;
  }
  // Start() in two steps, for an observer that needs the session pointer: callbacks may come before
  // Run() has returned. Call Run() once.
  static std::shared_ptr<JobSession> Make(JobOptions options, JobObserver* observer);
  void Run();

  // Pushes a chunk of the caller's rows, in any order. Requires: OnPlaced() has been called, inputs
  // are absent. `credit` is dropped when the bytes have been written. A wrong chunk ends the
  // session, in this order: DATA_LOSS / CHECKSUM_MISMATCH (by the worker if the plan has one rank),
  // then INVALID_ARGUMENT with STREAM_SEQUENCE, UNKNOWN_TENSOR, CHUNK_OUT_OF_RANGE,
  // TENSOR_BYTES_MISMATCH or CHUNK_OVERLAP.
  void Push(TensorChunk chunk, Credit credit);
  // Ends the pushed inputs. If rows are missing, the session ends with INVALID_ARGUMENT /
  // MISSING_ROWS.
  void CloseInputs();

  // Cancels the job and ends the session with `status`.
  void Cancel(absl::Status status = absl::CancelledError("cancelled by the client"));

 private:
  class Impl;
  explicit JobSession(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<Impl> impl_;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_SESSION_JOB_SESSION_H_

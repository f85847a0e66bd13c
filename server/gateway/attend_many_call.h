#ifndef ANNULUS_SERVER_GATEWAY_ATTEND_MANY_CALL_H_
#define ANNULUS_SERVER_GATEWAY_ATTEND_MANY_CALL_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "client/session/job_session.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "proto/rpc/shared_timer.h"
#include "proto/rpc/slow_reader_guard.h"
#include "server/gateway/concurrency_limiter.h"
#include "server/gateway/gateway_options.h"
#include "server/gateway/idle_calls.h"
#include "server/gateway/job_answer.h"

namespace annulus {

// One AttendMany call: small jobs in turn. Each job is one message; the answer of a short job is
// one message too. It holds the inputs and outputs of one job. The next job is read when the answer
// has been written. An error of a job is its answer; the call ends with OK when no more jobs come.
class AttendManyCall : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                       private JobObserver {
 public:
  // The reactor of a new call; it deletes itself. A job has a place in `gate` until it is over;
  // between jobs the call is in `resting`. `options`, `gate` and `resting` outlive the call.
  static AttendManyCall* Start(grpc::CallbackServerContext* context,
                               const GatewayServiceOptions& options, ConcurrencyLimiter* gate,
                               IdleCalls* resting);

 private:
  struct Output {
    grpc::ByteBuffer message;
    Credit credit;
  };

  AttendManyCall(grpc::CallbackServerContext* context, const GatewayServiceOptions& options,
                 ConcurrencyLimiter* gate, IdleCalls* resting)
      : context_(context), options_(options), gate_(gate), resting_(resting) {}

  // Called by gRPC.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // Called by the session of a job.
  void OnPlaced(const std::string& job_id, const v1::Plan& plan) override;
  void OnProgress(const JobProgress&) override {}
  void OnOutput(std::vector<TensorChunk> chunks, Credit credit) override;
  void OnDone(const absl::Status& status, const v1::JobStats& stats) override;

  // Waits for the next job, for a limited time.
  void Rest() EXCLUDES(mutex_);
  // Ends the call with OK, or with `why_none` if it has had no job.
  void Leave(const absl::Status& why_none) EXCLUDES(mutex_);
  absl::Status StartJob(const grpc::ByteBuffer& message, uint64_t* tag) EXCLUDES(mutex_);
  void WriteLocked(Output output) REQUIRES(mutex_);
  // Writes the waiting answer as a message of its own.
  void WriteAnswerLocked() REQUIRES(mutex_);
  // Writes the last message of the job.
  void EndJobLocked(grpc::ByteBuffer message) REQUIRES(mutex_);
  void LeaveLocked() REQUIRES(mutex_);
  void FinishLocked(const grpc::Status& status) REQUIRES(mutex_);

  grpc::CallbackServerContext* const context_;
  const GatewayServiceOptions& options_;
  ConcurrencyLimiter* const gate_;
  IdleCalls* const resting_;
  // The call and a job's session each keep this alive until they are done.
  std::shared_ptr<AttendManyCall> call_self_, session_self_;
  grpc::ByteBuffer in_;

  Mutex mutex_;
  std::shared_ptr<void> rest_ GUARDED_BY(mutex_);  // Between two jobs.
  std::unique_ptr<SharedTimer> patience_ GUARDED_BY(mutex_);
  std::optional<absl::Status> leaves_ GUARDED_BY(mutex_);  // Set: no more jobs; Leave's status.
  bool has_had_job_ GUARDED_BY(mutex_) = false;
  // `place_`: in the gate until the job's last message. `leaving_`: from then on until it is read.
  std::shared_ptr<void> place_ GUARDED_BY(mutex_), leaving_ GUARDED_BY(mutex_);
  std::shared_ptr<JobSession> session_ GUARDED_BY(mutex_);
  std::vector<TensorChunk> inputs_ GUARDED_BY(mutex_);  // Until the job is placed.
  JobAnswer answer_ GUARDED_BY(mutex_);
  std::unique_ptr<SharedTimer> answer_wait_
      GUARDED_BY(mutex_);                          // How long the answer waits for more.
  std::deque<Output> outputs_ GUARDED_BY(mutex_);  // The first one is being written.
  bool ended_ GUARDED_BY(mutex_) = false;          // The last output is the job's last message.
  std::optional<SlowReaderGuard> unread_ GUARDED_BY(mutex_);  // From the last message on.

  bool cancelled_ GUARDED_BY(mutex_) = false;
  bool finished_ GUARDED_BY(mutex_) = false;  // No operation may be started any more.
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_GATEWAY_ATTEND_MANY_CALL_H_

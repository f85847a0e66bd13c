#ifndef ANNULUS_SERVER_GATEWAY_GATEWAY_CALL_H_
#define ANNULUS_SERVER_GATEWAY_GATEWAY_CALL_H_

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "annulus/v1/attention.pb.h"
#include "base/mutex.h"
#include "client/session/job_session.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "proto/rpc/shared_timer.h"
#include "proto/rpc/slow_reader_guard.h"
#include "server/gateway/attend_request.h"
#include "server/gateway/concurrency_limiter.h"
#include "server/gateway/gateway_options.h"
#include "server/gateway/job_answer.h"

namespace annulus {

// One Attend call: passes the caller's messages to a JobSession and writes the session's outputs.
// Inputs are read only while fewer than max_unsent_messages wait to be sent. The credit of an
// output is dropped when it has been written. So a slow side slows down the other one, and memory
// is bounded by the credits. A small job has all inputs in the start message and a short predicted
// time. It is answered by one message if its turn comes soon.
class GatewayCall : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                    private JobObserver {
 public:
  // The reactor of a new call; it deletes itself. Its start message takes a place in `gate`. The
  // call keeps the place until it is over, or until its whole answer waits for the caller.
  // `options` and `gate` outlive the call.
  static GatewayCall* Start(grpc::CallbackServerContext* context,
                            const GatewayServiceOptions& options, ConcurrencyLimiter* gate);

 private:
  struct Output {
    grpc::ByteBuffer message;
    Credit credit;
  };

  GatewayCall(grpc::CallbackServerContext* context, const GatewayServiceOptions& options,
              ConcurrencyLimiter* gate);

  // Called by gRPC.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // Called by the session.
  void OnPlaced(const std::string& job_id, const v1::Plan& plan) override;
  void OnProgress(const JobProgress&) override {}
  void OnOutput(std::vector<TensorChunk> chunks, Credit credit) override;
  void OnDone(const absl::Status& status, const v1::JobStats& stats) override;

  // Reads the first message, with a time limit.
  void AwaitStart() EXCLUDES(mutex_);
  absl::Status StartJob(const grpc::ByteBuffer& message);
  absl::Status TakeChunks(const grpc::ByteBuffer& message);
  void Push(std::vector<TensorChunk> chunks) EXCLUDES(mutex_);
  void ReadMore() EXCLUDES(mutex_);
  // Writes the waiting part of a small job's answer as a message of its own.
  void WriteAnswer() EXCLUDES(mutex_);
  void WriteAnswerLocked() REQUIRES(mutex_);
  void Write(Output output) EXCLUDES(mutex_);
  // Writes the next message, together with an OK end if nothing else waits.
  void WriteNextLocked() REQUIRES(mutex_);
  // Ends the call with `status`: at once for an error, otherwise after the queued messages.
  void End(const absl::Status& status) EXCLUDES(mutex_);
  // Returns the messages that were queued and are not written, to be destroyed after the lock.
  std::deque<Output> EndLocked(const absl::Status& status) REQUIRES(mutex_);
  // Finishes with end_.
  void FinishLocked() REQUIRES(mutex_);
  // The call has ended, and queued messages are still to be read. Starts the time limit for
  // reading, and frees the place after an OK end, so that a caller that does not read keeps nobody
  // out.
  void AwaitReaderLocked() REQUIRES(mutex_);

  const GatewayServiceOptions& options_;
  ConcurrencyLimiter* const gate_;
  const absl::Time deadline_;  // By base/steady_time.h.
  SlowReaderGuard slow_reader_guard_;
  // `place_`: in the gate from the start to an OK end. `leaving_`: from then on until the end is
  // read.
  std::shared_ptr<void> place_, leaving_;
  // The call and the session each keep this alive until they are done.
  std::shared_ptr<GatewayCall> call_self_, session_self_;
  grpc::ByteBuffer in_;
  InputShape inputs_;  // Used by the reads, which are sequential.
  bool fits_ = false;  // All inputs came with the start, and one message holds the outputs.

  Mutex mutex_;
  std::unique_ptr<SharedTimer> first_message_ GUARDED_BY(mutex_);  // Until the first message.
  std::shared_ptr<JobSession> session_ GUARDED_BY(mutex_);         // Until the job's end.
  std::vector<TensorChunk> first_ GUARDED_BY(mutex_);  // Chunks of the start message, until placed.
  std::deque<Output> outputs_ GUARDED_BY(mutex_);      // The first one is being written.
  std::optional<absl::Status> end_ GUARDED_BY(mutex_);
  JobAnswer answer_ GUARDED_BY(mutex_);
  std::unique_ptr<SharedTimer> answer_wait_
      GUARDED_BY(mutex_);  // How long a small job's answer waits.
  bool placed_ GUARDED_BY(mutex_) = false;
  bool reading_ GUARDED_BY(mutex_) = false;
  bool closed_ GUARDED_BY(mutex_) = false;  // The caller has sent everything.
  bool cancelled_ GUARDED_BY(mutex_) = false;
  bool finished_ GUARDED_BY(mutex_) = false;  // No operation may be started any more.
  int unsent_ GUARDED_BY(mutex_) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_GATEWAY_GATEWAY_CALL_H_

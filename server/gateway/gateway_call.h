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

// One Attend call: reads the caller's messages into a JobSession and writes what the session gives.
// Inputs are read only while fewer than max_unsent_messages wait to leave; an output's credit is
// dropped when it has been written. So a slow side slows the other one, and memory stays what the
// credits allow. A small job, whose inputs all came with the start and which takes no time to speak
// of, is answered by one message, where its turn comes soon.
class GatewayCall : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                    private JobObserver {
 public:
  // The reactor of a new call; it deletes itself. Its start message asks for a place in the gate,
  // which it has until it is over, or its whole answer waits for its caller. `options` and `gate`
  // outlive it.
  static GatewayCall* Start(grpc::CallbackServerContext* context,
                            const GatewayServiceOptions& options, ConcurrencyLimiter* gate);

 private:
  struct Output {
    grpc::ByteBuffer message;
    Credit credit;
  };

  GatewayCall(grpc::CallbackServerContext* context, const GatewayServiceOptions& options,
              ConcurrencyLimiter* gate);

  // Reactions of the call.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // Reactions of the session.
  void OnPlaced(const std::string& job_id, const v1::Plan& plan) override;
  void OnProgress(const JobProgress&) override {}
  void OnOutput(std::vector<TensorChunk> chunks, Credit credit) override;
  void OnDone(const absl::Status& status, const v1::JobStats& stats) override;

  // Reads the first message, for which there is a time.
  void AwaitStart() EXCLUDES(mutex_);
  absl::Status StartJob(const grpc::ByteBuffer& message);
  absl::Status TakeChunks(const grpc::ByteBuffer& message);
  void Push(std::vector<TensorChunk> chunks) EXCLUDES(mutex_);
  void ReadMore() EXCLUDES(mutex_);
  // What waits of a small job's answer, as a message of its own.
  void WriteAnswer() EXCLUDES(mutex_);
  void WriteAnswerLocked() REQUIRES(mutex_);
  void Write(Output output) EXCLUDES(mutex_);
  // With the end, where it is a good one and nothing else waits.
  void WriteNextLocked() REQUIRES(mutex_);
  // Ends the call with `status`: at once when it is an error, else after what is queued.
  void End(const absl::Status& status) EXCLUDES(mutex_);
  // What was queued and is not written is returned, to be let go after the lock.
  std::deque<Output> EndLocked(const absl::Status& status) REQUIRES(mutex_);
  // With end_.
  void FinishLocked() REQUIRES(mutex_);
  // It has ended, and what is queued is still to be read. Who does not read keeps nobody out.
  void AwaitReaderLocked() REQUIRES(mutex_);

  const GatewayServiceOptions& options_;
  ConcurrencyLimiter* const gate_;
  const absl::Time deadline_;  // By base/steady_time.h.
  SlowReaderGuard unread_end_;
  // In the gate, from the start to a good end; then until that is read.
  std::shared_ptr<void> place_, leaving_;
  // The call and the session each keep this alive until they are done.
  std::shared_ptr<GatewayCall> call_self_, session_self_;
  grpc::ByteBuffer in_;
  InputShape inputs_;  // Of the reads, which follow one another.
  bool fits_ = false;  // All inputs have come with the start, and a message holds the outputs.

  Mutex mutex_;
  std::unique_ptr<SharedTimer> first_message_ GUARDED_BY(mutex_);  // Until it is here.
  std::shared_ptr<JobSession> session_ GUARDED_BY(mutex_);         // Until the job's end.
  std::vector<TensorChunk> first_ GUARDED_BY(mutex_);  // Of the start message, until it is placed.
  std::deque<Output> outputs_ GUARDED_BY(mutex_);      // The first one is being written.
  std::optional<absl::Status> end_ GUARDED_BY(mutex_);
  JobAnswer answer_ GUARDED_BY(mutex_);
  std::unique_ptr<SharedTimer> answer_wait_
      GUARDED_BY(mutex_);  // How long a small job's answer waits.
  bool placed_ GUARDED_BY(mutex_) = false;
  bool reading_ GUARDED_BY(mutex_) = false;
  bool closed_ GUARDED_BY(mutex_) = false;  // The caller has sent all.
  bool cancelled_ GUARDED_BY(mutex_) = false;
  bool finished_ GUARDED_BY(mutex_) = false;  // No operation may be started any more.
  int unsent_ GUARDED_BY(mutex_) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_GATEWAY_GATEWAY_CALL_H_

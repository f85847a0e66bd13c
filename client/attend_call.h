#ifndef ANNULUS_CLIENT_ATTEND_CALL_H_
#define ANNULUS_CLIENT_ATTEND_CALL_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "client/attend.h"
#include "client/session/gateway_session.h"
#include "client/session/job_session.h"
#include "client/session/retry.h"
#include "client/session/state_handoff.h"
#include "client/transport/callback_thread.h"

namespace annulus {

// The parts of its client that a call uses. The functions do not block and may be called from any
// thread.
struct AttendContext {
  CallbackThread* callbacks;
  // Returns the path; nothing if it is not known yet: then `later` is called with it.
  std::function<std::optional<DataPath>(std::function<void(DataPath)> later)> choose_path;
  std::function<void()> forget_path;  // Call if the chosen path has failed.
  std::function<std::shared_ptr<grpc::Channel>(const std::string&)> channel;
  std::shared_ptr<StreamPool> exchanges;         // For JobOptions.
  std::shared_ptr<AttendManyCalls> attend_many;  // For GatewayOptions.
  std::function<std::shared_ptr<const void>()> open = [] { return nullptr; };  // For JobOptions.
  std::string address;
  Metadata metadata;
  // True if `done` only wakes a waiting thread. It is then called where the call ends, perhaps
  // inside gRPC, and not on the callback thread.
  bool wakes = false;
};

// One Attend() with its retries. The steps, which run one after another on the starter's thread,
// the session's threads and the callback thread:
// 1. Check() the arguments.
// 2. ChoosePath(): direct or gateway.
// 3. StartSession(): a JobSession or a GatewaySession, with this call as its observer.
// 4. Settle(), only for a job that keeps its state and whose end is unknown
//    (client/session/state_handoff.h).
// 5. GoOn(): Deliver() the result, or wait and go to step 2.
//
// Lives until `done` has returned.
class AttendCall : public AttendCallHandle,
                   private JobObserver,
                   public std::enable_shared_from_this<AttendCall> {
 public:
  using Done = std::function<void(absl::StatusOr<AttendResult>)>;
  // `deadline` is on the clock of base/steady_time.h.
  AttendCall(AttendContext context, AttendArguments arguments, absl::Time deadline, Done done);

  // Call once, from any thread. Does not block.
  void Start();
  void Cancel() override EXCLUDES(mutex_);

 private:
  absl::Status Check() const;
  // After the error `status`: true if the job's state is gone and the job now runs without it.
  bool GiveUpState(const absl::Status& status);
  void ChoosePath() EXCLUDES(mutex_);
  // Begins a wait, for a path or for the next attempt. Returns its number, or 0 if the call was
  // cancelled before (the result is then delivered). A wait ends once: EndWait() is true for the
  // first event that ends it, and false after that or after Cancel().
  int BeginWait() EXCLUDES(mutex_);
  bool EndWait(int wait) EXCLUDES(mutex_);
  void StartSession(DataPath path) EXCLUDES(mutex_);
  std::function<void()> StartDirect(InputMemory inputs);
  std::function<void()> StartGateway(InputMemory inputs);
  InputMemory BorrowInputs();
  OutputMemory Outputs() const;
  // Asks what became of the last session's job, which was to keep its state, and goes on.
  void Settle(absl::Status error) EXCLUDES(mutex_);
  // After a session has ended with `status`: starts the next attempt or delivers the result.
  void GoOn(const absl::Status& status) EXCLUDES(mutex_);
  bool IsCancelled() EXCLUDES(mutex_);
  void Deliver(absl::Status status);

  void OnPlaced(const std::string& job_id, const v1::Plan& plan) override;
  void OnProgress(const JobProgress& progress) override;
  void OnOutput(std::vector<TensorChunk>, Credit) override {}
  void OnUnconfirmed(const absl::Status& why, bool all_reported) override;
  void OnDone(const absl::Status& status, const v1::JobStats& stats) override EXCLUDES(mutex_);

  const AttendContext context_;
  const AttendArguments arguments_;
  AttentionSpec spec_;  // The spec of the next session.
  const absl::Time deadline_;
  Done done_;
  RetryPolicy retry_;
  AttendResult result_;
  absl::Status result_status_;
  std::string job_id_;  // The job of this session, after its placement.
  // The error of a session that has all rows, but no confirmation of its state.
  absl::Status unconfirmed_;
  std::vector<absl::Status> earlier_;  // Errors of the earlier attempts.
  // Error of the last attempt whose job may nevertheless have succeeded.
  absl::Status lost_;
  // Sessions and gRPC hold copies while they may read the inputs. When the last copy is dropped,
  // `done` is called.
  std::shared_ptr<const void> inputs_lease_;
  std::shared_ptr<AttendCall> self_;  // Set while a session has this as its observer.

  Mutex mutex_;
  bool cancelled_ GUARDED_BY(mutex_) = false;
  int waits_ GUARDED_BY(mutex_) = 0;
  int wait_ GUARDED_BY(mutex_) = 0;     // The number of the current wait; 0: none.
  int session_ GUARDED_BY(mutex_) = 0;  // The number of the current session; 0: none.
  std::function<void()> cancel_session_ GUARDED_BY(mutex_);
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_ATTEND_CALL_H_

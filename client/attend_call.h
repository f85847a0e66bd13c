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
#include "client/client.h"
#include "client/session/gateway_session.h"
#include "client/session/job_session.h"
#include "client/session/retry.h"
#include "client/session/state_handoff.h"
#include "client/transport/callback_thread.h"

namespace annulus {

// What a call needs of its client. The functions do not wait and are called from any thread.
struct AttendContext {
  CallbackThread* callbacks;
  // Direct or gateway; absent: `later` will be called with it.
  std::function<std::optional<DataPath>(std::function<void(DataPath)> later)> choose_path;
  std::function<void()> forget_path;  // The choice did not hold.
  std::function<std::shared_ptr<grpc::Channel>(const std::string&)> channel;
  std::shared_ptr<StreamPool> exchanges;                                       // For JobOptions.
  std::shared_ptr<AttendManyCalls> attend_many;                                // GatewayOptions.
  std::function<std::shared_ptr<const void>()> open = [] { return nullptr; };  // For JobOptions.
  std::string address;
  Metadata metadata;
  // `done` only wakes a thread that waits: it is called where the call ends, perhaps inside of
  // gRPC, and not from the callback thread.
  bool wakes = false;
};

// One Attend with its retries: checks, chooses a path, runs a session, decides what an error means.
// Its parts follow one another on whatever threads they come from: the starter's, the session's,
// the callback thread. Lives on until `done` has returned.
class AttendCall : public Client::Call,
                   private JobObserver,
                   public std::enable_shared_from_this<AttendCall> {
 public:
  using Done = std::function<void(absl::StatusOr<AttendResult>)>;
  // `deadline` by base/steady_time.h.
  AttendCall(AttendContext context, AttendArguments arguments, absl::Time deadline, Done done);

  // Called once, from any thread. Does not wait.
  void Start();
  void Cancel() override EXCLUDES(mutex_);

 private:
  absl::Status Check() const;
  // Whether the job, which ended so, is now one without its state.
  bool GiveUpState(const absl::Status& status);
  // Whether an attempt of this call may have released the state that `status` misses.
  bool MayHaveReleased(const absl::Status& status) const;
  void ChoosePath() EXCLUDES(mutex_);
  // A wait, for a path or for the next attempt, ends once: by one of the things waited for, whose
  // EndWait is then true, or by Cancel. 0: cancelled before, and delivered.
  int BeginWait() EXCLUDES(mutex_);
  bool EndWait(int wait) EXCLUDES(mutex_);
  void StartSession(DataPath path) EXCLUDES(mutex_);
  std::function<void()> StartDirect(InputMemory inputs);
  std::function<void()> StartGateway(InputMemory inputs);
  InputMemory BorrowInputs();
  OutputMemory Outputs() const;
  // Learns what became of the last session's job, which was to keep its state, and goes on.
  void Settle(absl::Status error) EXCLUDES(mutex_);
  // After a session that ended so: the next one, or the end.
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
  AttentionSpec spec_;  // Of the next session.
  const absl::Time deadline_;
  Done done_;
  RetryPolicy retry_;
  AttendResult result_;
  absl::Status result_status_;
  std::string job_id_;        // Of this session, when it has been placed.
  absl::Status unconfirmed_;  // What a session with all rows ended with, whose state is not known.
  std::vector<absl::Status> earlier_;  // What the attempts before this one ended with.
  absl::Status lost_;  // What the last attempt ended with that may have succeeded for all that.
  // Sessions and gRPC hold copies while they may read the inputs; the last one's end lets `done` be
  // called.
  std::shared_ptr<const void> inputs_lease_;
  std::shared_ptr<AttendCall> self_;  // While a session has this as its observer.

  Mutex mutex_;
  bool cancelled_ GUARDED_BY(mutex_) = false;
  int waits_ GUARDED_BY(mutex_) = 0;
  int wait_ GUARDED_BY(mutex_) = 0;     // Number of the one that lasts; 0: none.
  int session_ GUARDED_BY(mutex_) = 0;  // Number of the one that runs; 0: none.
  std::function<void()> cancel_session_ GUARDED_BY(mutex_);
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_ATTEND_CALL_H_

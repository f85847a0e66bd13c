#ifndef ANNULUS_CLIENT_ATTEND_CALL_H_
#define ANNULUS_CLIENT_ATTEND_CALL_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "client/callback_thread.h"
#include "client/client.h"
#include "client/job_session.h"
#include "client/retry.h"

namespace annulus {

// What a call needs of its client. The functions are called from the callback thread.
struct AttendContext {
  CallbackThread* callbacks;
  std::function<DataPath(absl::Time deadline)> choose_path;  // Direct or gateway; may wait.
  std::function<void()> forget_path;                         // The choice did not hold.
  std::function<std::shared_ptr<grpc::Channel>(const std::string&)> channel;
  std::string address;
  Metadata metadata;
};

// One Attend with its retries: checks, chooses a path, runs a session, decides what an error means.
// Everything but the session runs on the callback thread. Lives on until `done` has returned.
class AttendCall : public Client::Call,
                   private JobObserver,
                   public std::enable_shared_from_this<AttendCall> {
 public:
  using Done = std::function<void(absl::StatusOr<AttendResult>)>;
  AttendCall(AttendContext context, AttendArguments arguments, absl::Time deadline, Done done);

  // Called once, from any thread.
  void Start();
  void Cancel() override EXCLUDES(mutex_);

 private:
  void StartSession() EXCLUDES(mutex_);
  void StartDirect(InputMemory inputs) EXCLUDES(mutex_);
  void StartGateway(InputMemory inputs) EXCLUDES(mutex_);
  void SetCancel(std::function<void()> cancel) EXCLUDES(mutex_);
  InputMemory BorrowInputs();
  OutputMemory Outputs() const;
  void OnSessionDone(const absl::Status& status, const v1::JobStats& stats) EXCLUDES(mutex_);
  void Deliver(absl::Status status);

  void OnPlaced(const std::string& job_id, const v1::Plan& plan) override;
  void OnProgress(const JobProgress& progress) override;
  void OnOutput(std::vector<TensorChunk>, Credit) override {}
  void OnDone(const absl::Status& status, const v1::JobStats& stats) override;

  const AttendContext context_;
  const AttendArguments arguments_;
  const absl::Time deadline_;
  Done done_;
  RetryPolicy retry_;
  AttendResult result_;
  absl::Status result_status_;
  // Sessions and gRPC hold copies while they may read the inputs; the last one's end lets `done` be
  // called.
  std::shared_ptr<const void> inputs_lease_;
  std::shared_ptr<AttendCall> self_;  // While a session has this as its observer.

  Mutex mutex_;
  bool cancelled_ GUARDED_BY(mutex_) = false;
  std::function<void()> cancel_session_ GUARDED_BY(mutex_);
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_ATTEND_CALL_H_

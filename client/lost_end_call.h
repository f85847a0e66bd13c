#ifndef ANNULUS_CLIENT_LOST_END_CALL_H_
#define ANNULUS_CLIENT_LOST_END_CALL_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "annulus/v1/jobs.grpc.pb.h"
#include "base/mutex.h"
#include "client/raw_stream.h"
#include "client/session_end.h"
#include "grpcpp/channel.h"

namespace annulus {

// Settles what AfterLostEnd asks about a job that was to keep its state: GetJob, and where the job
// is not the answer CancelJob or ReleaseState. Thread-safe; no method waits. Lives on by itself
// until `done` has returned.
class LostEndCall : public std::enable_shared_from_this<LostEndCall> {
 public:
  // The job, where it is the answer; else absent, also where no more could be learned.
  using Done = std::function<void(std::optional<v1::Job>)>;

  LostEndCall(std::shared_ptr<grpc::Channel> coordinator, Metadata metadata, std::string job_id,
              bool rows_are_here);

  // Called once. `done` comes once, on a thread of gRPC, `limit` from now at the latest.
  void Start(absl::Duration limit, Done done) EXCLUDES(mutex_);
  // The job is nobody's answer any more, whatever is learned of it. `done` comes as if this had not
  // been called: a state that nobody knows is worth the wait.
  void Cancel() EXCLUDES(mutex_);

 private:
  enum class Step { kAsk, kCancel, kRelease };
  void Do(Step step);
  void OnAnswer(Step step, bool ok) EXCLUDES(mutex_);
  bool MayBeUsed() EXCLUDES(mutex_);
  void Finish(std::optional<v1::Job> job);

  v1::Jobs::Stub stub_;
  const Metadata metadata_;
  const std::string job_id_;
  absl::Time deadline_;  // By base/steady_time.h.
  Done done_;
  v1::GetJobRequest ask_;
  v1::CancelJobRequest cancel_;
  v1::ReleaseStateRequest release_;
  v1::Job job_;
  Mutex mutex_;
  bool may_be_used_ GUARDED_BY(mutex_);
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_LOST_END_CALL_H_

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
#include "grpcpp/client_context.h"

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
  // `done` comes soon.
  void Cancel() EXCLUDES(mutex_);

 private:
  enum class Step { kAsk, kCancel, kRelease };
  void Do(Step step) EXCLUDES(mutex_);
  void OnAnswer(Step step, bool ok) EXCLUDES(mutex_);
  void Finish(std::optional<v1::Job> job);

  v1::Jobs::Stub stub_;
  const Metadata metadata_;
  const std::string job_id_;
  const bool rows_are_here_;
  absl::Time deadline_;  // By base/steady_time.h.
  Done done_;
  v1::GetJobRequest ask_;
  v1::CancelJobRequest cancel_;
  v1::ReleaseStateRequest release_;
  v1::Job job_;
  Mutex mutex_;
  bool cancelled_ GUARDED_BY(mutex_) = false;
  std::shared_ptr<grpc::ClientContext> context_ GUARDED_BY(mutex_);  // Of the step under way.
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_LOST_END_CALL_H_

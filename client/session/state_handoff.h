#ifndef ANNULUS_CLIENT_SESSION_STATE_HANDOFF_H_
#define ANNULUS_CLIENT_SESSION_STATE_HANDOFF_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "annulus/v1/jobs.grpc.pb.h"
#include "annulus/v1/jobs.pb.h"
#include "attention/spec/spec.h"
#include "base/mutex.h"
#include "client/transport/raw_stream.h"
#include "grpcpp/channel.h"

namespace annulus {

// When a session whose rows are all here may end, and how. Pure functions.

// Whether it waits for the end of its RunJob call all the same: a request id is free, and a state
// kept or released, only when that one has ended.
bool AwaitsEndOfCall(const v1::RunJobRequest& request, const AttentionSpec& spec);

// Whether its inputs may be another call's: then rows of a job whose worker did not take all of
// this call's, or find them equal to what it had, are no answer.
bool MayBeJoined(const v1::RunJobRequest& request);

// Whether its rows may be the answer though its job ended, or its call did, with `error`. So where
// the job was to release a state: it may have, and no later attempt would then have an answer; and
// where it was to keep one and the call broke: ResolveUnconfirmedJob says more. Not where the error
// may speak against the rows themselves, nor where nothing is lost by sending the job again.
bool StandsUnconfirmed(const AttentionSpec& spec, const absl::Status& error);

// What to do about a job that was to keep its state and whose end was not heard, by what the
// coordinator tells of it. kUse: its rows and its state are what was asked for. Else the job is
// sent again, and this one must not leave a state that nobody knows.
enum class HandoffStep { kUse, kRelease, kCancel, kNothing };
HandoffStep ResolveUnconfirmedJob(const v1::Job& job, bool rows_are_here);

// Settles what ResolveUnconfirmedJob asks about a job that was to keep its state: GetJob, and where
// the job is not the answer CancelJob or ReleaseState. Thread-safe; no method waits. Lives on by
// itself until `done` has returned.
class StateHandoffCall : public std::enable_shared_from_this<StateHandoffCall> {
 public:
  // The job, where it is the answer; else absent, also where no more could be learned.
  using Done = std::function<void(std::optional<v1::Job>)>;

  StateHandoffCall(std::shared_ptr<grpc::Channel> coordinator, Metadata metadata,
                   std::string job_id, bool rows_are_here);

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

#endif  // ANNULUS_CLIENT_SESSION_STATE_HANDOFF_H_

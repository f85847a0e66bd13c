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

// Kept state after a lost answer.
//
// A forward job with keep_state leaves a state on its workers. A gradients job with release_state
// releases one. Only the end of the job's call confirms this. If the call breaks after all rows
// have arrived, the rows are valid, but the state is uncertain. A plain retry could fail (the state
// is released already) or leave a state that no client uses until it expires. The three cases:
//
// 1. Normal end: a session waits for the end of RunJob although all rows are here
//    (AwaitsEndOfCall()).
// 2. release_state, and the end is an error: the rows are the answer, with the error in
//    AttendResult::release_unconfirmed (StandsUnconfirmed()).
// 3. keep_state, and the end is UNAVAILABLE: StateHandoffCall gets the job from the coordinator.
//    ResolveUnconfirmedJob() chooses the step:
//
//   GetJob or CancelJob answers      all rows here   not all rows here
//   the job has not ended            kCancel         kCancel
//   ended, the state is held         kUse            kRelease
//   ended, no state is held          kNothing        kNothing
//
// kUse: the job is the answer. After the other steps the job is sent again.

// True if the session must wait for the end of its RunJob call although all rows are here. A
// request id is free, and a state is kept or released, only after that end.
bool AwaitsEndOfCall(const v1::RunJobRequest& request, const AttentionSpec& spec);

// True if another call may have sent the inputs (the request has a request_id). The outputs are
// then valid only if each worker took all inputs of this call, or found them equal to those that it
// had.
bool MayBeJoined(const v1::RunJobRequest& request);

// True if the rows can be the answer although the job or its call ended with `error`.
// - keep_state: only for UNAVAILABLE. StateHandoffCall must then confirm the state.
// - release_state: for errors that CoordinatorDecides() (client/transport/session_errors.h). The
//   state may be released, and a later attempt would get no answer.
// - Any other job: false, it can be sent again. Any other error: false, it may mean that the rows
//   are wrong.
bool StandsUnconfirmed(const AttentionSpec& spec, const absl::Status& error);

// True if a job with keep_state may have left a state whose id no client has: its call ended with
// `error`, and StateHandoffCall must get the job from the coordinator.
bool KeptStateIsUnknown(const AttentionSpec& spec, const absl::Status& error);

// True if `status` means that the state that a gradients job named is gone: NOT_FOUND with
// STATE_LOST, STATE_EXPIRED, STATE_RELEASED or STATE_NOT_FOUND.
bool StateIsGone(const absl::Status& status);
// The same job with all inputs in place of a kept state.
AttentionSpec WithoutState(AttentionSpec spec);

// True if `status` (STATE_RELEASED) may be the work of an earlier attempt of the same call: the job
// releases the state, and that attempt was `lost`, OK if none was.
bool MayHaveReleased(const AttentionSpec& spec, const absl::Status& lost,
                     const absl::Status& status);

// The step for a job with keep_state whose end is unknown; see the table above. `job` is the
// coordinator's answer to GetJob or CancelJob.
enum class HandoffStep { kUse, kRelease, kCancel, kNothing };
HandoffStep ResolveUnconfirmedJob(const v1::Job& job, bool rows_are_here);

// Confirms or removes the state of a job whose end is unknown: GetJob, then CancelJob or
// ReleaseState if the job is not the answer. Thread-safe; no method blocks. Lives by itself until
// `done` has returned.
class StateHandoffCall : public std::enable_shared_from_this<StateHandoffCall> {
 public:
  // The job if it is the answer. Absent otherwise, and if the coordinator does not answer.
  using Done = std::function<void(std::optional<v1::Job>)>;
  // Time to allow, where the caller's deadline leaves it.
  static constexpr absl::Duration kTimeLimit = absl::Seconds(5);

  StateHandoffCall(std::shared_ptr<grpc::Channel> coordinator, Metadata metadata,
                   std::string job_id, bool rows_are_here);

  // Call once. `done` is called once, on a thread of gRPC, at most `limit` from now.
  void Start(absl::Duration limit, Done done) EXCLUDES(mutex_);
  // The job can no longer be the answer. `done` is not called earlier for that: the state must
  // still be released, or it would stay until it expires.
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
  absl::Time deadline_;  // On the clock of base/steady_time.h.
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

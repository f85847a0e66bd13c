#ifndef ANNULUS_CLIENT_SESSION_SESSION_STATE_MACHINE_H_
#define ANNULUS_CLIENT_SESSION_SESSION_STATE_MACHINE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "annulus/v1/jobs.pb.h"
#include "attention/spec/spec.h"
#include "client/session/job_progress.h"
#include "client/session/session_stats.h"
#include "client/transport/scatter.h"

namespace annulus {

// Decides the next step of one job on the direct path, event by event. JobSession performs the
// steps. The machine has no calls, no clock and no threads: the same events at the same times give
// the same actions. Times are of one steady clock and must not decrease. Not thread-safe: one
// thread at a time.
//
// How a job runs (docs/how-to/direct-path.md shows every message):
// 1. The session opens RunJob. Its events arrive in OnJobEvent().
// 2. `placed` brings a plan, which is a new attempt (OnPlaced()). Actions::start opens its streams:
//    one upload for each shard with input bytes, one download for each shard with output bytes. If
//    streams of the previous attempt are open, Actions::cancel_streams comes first; StartIfQuiet()
//    starts the new attempt after the last of them has ended.
// 3. Streams report bytes in OnMoved(), the worker's report in OnReport() and their end in
//    OnStreamDone().
// 4. The session ends with OK when all rows are here and verified and the stats are complete
//    (EndIfQuiet()): the coordinator can no longer change the answer. RunJob may still be open
//    then. With Options::awaits_end_of_call, RunJob must have ended too.
//
// When something fails:
// - A stream fails with an error that CoordinatorDecides() (client/transport/session_errors.h):
//   perhaps only the worker is gone. The machine keeps the error for Options::grace. Within that
//   time the coordinator places the job again (QUEUED, then `placed`) or ends it. Otherwise
//   OnTime() fails the session with UndecidedError().
// - A stream fails with any other error: the session fails at once.
// - An upload fails after the job has succeeded: ignored, a worker ends the streams of a job that
//   is over.
// - The job is placed again: everything is sent and fetched again. This needs inputs and outputs in
//   memory, else the session fails with SendAgainError().
// - The job fails, or RunJob breaks (EndWith()): the session fails with that error, unless
//   StandsUnconfirmed() (client/session/state_handoff.h). Then the machine waits
//   Options::outputs_grace for the remaining outputs (not after DEADLINE_EXCEEDED: then only rows
//   that are here count). If all come, the session ends with OK and End::unconfirmed.
// - RunJob ends with OK before all outputs are here: they may come until Options::deadline.
// - With Options::may_be_joined, another call may have sent the inputs. The outputs count only if
//   each of this session's uploads has ended with OK; otherwise the error is
//   EndedForAnotherError().
//
// Fail() cancels RunJob and the streams. The failed session ends when all of them have ended.
class SessionStateMachine {
 public:
  struct Options {
    const AttentionSpec* spec = nullptr;  // Must outlive the machine.
    // True if the inputs (the outputs) are in the caller's memory. If both are true, a job that is
    // placed again is sent again. Else a new placement ends the session: pushed inputs are no
    // longer available, and delivered outputs cannot be withdrawn.
    bool inputs_in_memory = false, outputs_in_memory = false;
    // MayBeJoined() and AwaitsEndOfCall() of client/session/state_handoff.h.
    bool may_be_joined = false, awaits_end_of_call = false;
    // JobOptions::grace and JobOptions::outputs_grace.
    absl::Duration grace, outputs_grace;
    absl::Time deadline = absl::InfiniteFuture();
  };

  // The two directions of a shard. Each is a stream that ends once.
  enum class Stream { kUpload, kDownload };

  // A new attempt. Open an upload for each shard with input bytes and a download for each shard
  // with output bytes.
  struct Placement {
    std::string job_id;
    v1::Plan plan;
    std::vector<ShardRows> rows;  // By rank.
  };

  struct End {
    absl::Status status;
    v1::JobStats stats;
    // For JobObserver::OnUnconfirmed().
    std::optional<absl::Status> unconfirmed;
    bool all_reported;
  };

  // Perform the actions in this order.
  struct Actions {
    bool cancel_run_job = false;
    bool cancel_streams = false;  // All streams of the attempt. Each then ends soon.
    std::optional<Placement> start;
    bool tell_progress = false;
    std::optional<End> end;  // Set once. Only cancel_run_job may follow.
  };

  SessionStateMachine(Options options, absl::Time now);

  // An event of the RunJob call; the end of the call, once.
  Actions OnJobEvent(const v1::JobEvent& event, absl::Time now);
  Actions OnRunJobDone(absl::Status status, absl::Time now);
  // A stream's end, moved bytes and report. `attempt` is the one for which the stream was opened.
  Actions OnStreamDone(int32_t attempt, Stream stream, const absl::Status& status, absl::Time now);
  Actions OnMoved(Stream stream, int64_t bytes);
  void OnReport(int32_t attempt, int32_t rank, const v1::ShardReport& report);
  // The caller cancels the job, or its inputs are wrong.
  Actions OnFailure(const absl::Status& status);
  // Call at wake(). Later calls and needless calls are harmless.
  Actions OnTime(absl::Time now);

  // The time at which OnTime() has work. InfiniteFuture if only an event can cause work.
  absl::Time wake() const;
  // True if the session has failed. Its end may still wait for its streams and its call.
  bool failed() const { return failed_.has_value(); }
  const JobProgress& progress() const { return progress_; }

 private:
  // An error that ends the session at `until`, unless another event decides first.
  struct Awaited {
    absl::Status error;
    absl::Time until = absl::InfiniteFuture();
  };

  void OnState(const v1::Job& job, absl::Time now);
  void OnPlaced(const std::string& job_id, const v1::Plan& plan);
  void StartIfQuiet(absl::Time now);
  void Fail(absl::Status status);
  // The error of a stream, by what is known of the job. A worker that has served another call of
  // the same job drops the shard and ends the streams to it; the result is then
  // EndedForAnotherError().
  absl::Status NameLoss(const absl::Status& error) const;
  // Handles the end of the job or of RunJob with an error. Outputs that the workers have already
  // sent may still arrive.
  void EndWith(const absl::Status& error, absl::Time now);
  bool HasAttempt() const { return progress_.attempt > 0 && !waiting_.has_value() && !lost_; }
  bool HasAllOutputs() const { return HasAttempt() && outputs_missing_ == 0; }
  void EndIfQuiet();
  Actions Take();

  const Options options_;
  Actions actions_;  // Collected during the current event.
  JobProgress progress_;
  std::optional<Placement> waiting_;  // A new attempt that waits for the end of the old streams.
  SessionStats seen_;
  // From the coordinator (DRAINING or later), or computed from the reports.
  std::optional<v1::JobStats> stats_;
  // An error of this attempt that waits for the coordinator's decision.
  std::optional<Awaited> worker_error_;
  // The error of a download of this attempt that did not get all rows.
  std::optional<absl::Status> lost_outputs_;
  // The error with which the job ended. Its rows count if all of them arrive.
  std::optional<Awaited> unconfirmed_;
  // Limit for outputs after RunJob has ended with OK.
  absl::Time outputs_until_ = absl::InfiniteFuture();
  // True if the present attempt is lost and the coordinator has not placed the next one yet.
  bool lost_ = false;
  bool succeeded_ = false, run_job_open_ = true, ended_ = false;
  int live_streams_ = 0;
  // Streams that must still end with OK: downloads, and uploads if the job may be joined.
  int outputs_missing_ = 0;
  std::optional<absl::Status> failed_;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_SESSION_SESSION_STATE_MACHINE_H_

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

// What a job's session does about each thing that it hears. Decides only: it has no calls, no
// clock and no threads of its own, and the same events at the same times have the same answers.
// Times are of one steady clock and do not go back. One owner at a time.
class SessionStateMachine {
 public:
  struct Options {
    const AttentionSpec* spec = nullptr;  // Outlives the machine.
    // Both: a job that is placed again is sent again. Else that ends the session, for what was
    // pushed, or told, is gone.
    bool inputs_in_memory = false, outputs_in_memory = false;
    // Of client/session/state_handoff.h.
    bool may_be_joined = false, awaits_end_of_call = false;
    // Of JobOptions.
    absl::Duration grace, outputs_grace;
    absl::Time deadline = absl::InfiniteFuture();
  };

  // The two directions of a shard, each a stream that ends once.
  enum class Stream { kUpload, kDownload };

  // An attempt whose streams are to be opened: for each shard an upload where it has input bytes,
  // a download where it has output bytes.
  struct ArenaPlan {
    std::string job_id;
    v1::Plan plan;
    std::vector<ShardRows> rows;  // By rank.
  };

  struct End {
    absl::Status status;
    v1::JobStats stats;
    // JobObserver::OnUnconfirmed.
    std::optional<absl::Status> unconfirmed;
    bool all_reported;
  };

  // What is to be done about an event, in this order.
  struct Actions {
    bool cancel_run_job = false;
    bool cancel_streams = false;  // Of the attempt: each ends soon.
    std::optional<ArenaPlan> start;
    bool tell_progress = false;
    std::optional<End> end;  // Once. Nothing but cancel_run_job comes after it.
  };

  SessionStateMachine(Options options, absl::Time now);

  // Of the RunJob call, and its end, once.
  Actions OnJobEvent(const v1::JobEvent& event, absl::Time now);
  Actions OnRunJobDone(absl::Status status, absl::Time now);
  // Of streams, with the attempt that they were opened for.
  Actions OnStreamDone(int32_t attempt, Stream stream, const absl::Status& status, absl::Time now);
  Actions OnMoved(Stream stream, int64_t bytes);
  void OnReport(int32_t attempt, int32_t rank, const v1::ShardReport& report);
  // The caller's own: it does not want the job, or sent what cannot be.
  Actions OnFailure(const absl::Status& status);
  // At wake(), or later, or in vain.
  Actions OnTime(absl::Time now);

  // When OnTime may have something to do; InfiniteFuture where only an event can.
  absl::Time wake() const;
  // Whether it has ended in failure, or will when its streams and its call have ended.
  bool failed() const { return failed_.has_value(); }
  const JobProgress& progress() const { return progress_; }

 private:
  // An error that ends the session unless something better comes by then.
  struct Awaited {
    absl::Status error;
    absl::Time until = absl::InfiniteFuture();
  };

  void OnState(const v1::Job& job, absl::Time now);
  void OnPlaced(const std::string& job_id, const v1::Plan& plan);
  void StartIfQuiet(absl::Time now);
  void Fail(absl::Status status);
  // What a stream's error means, by what is known of the job: a worker that has served another call
  // of it lets go of the shard, and of whoever was at it.
  absl::Status NameLoss(const absl::Status& error) const;
  // The job ended, or its call did: what the workers have sent by then is still to come.
  void EndWith(const absl::Status& error, absl::Time now);
  bool HasAttempt() const { return progress_.attempt > 0 && !waiting_.has_value() && !lost_; }
  bool HasAllOutputs() const { return HasAttempt() && outputs_missing_ == 0; }
  void EndIfQuiet();
  Actions Take();

  const Options options_;
  Actions actions_;  // Of the event at hand.
  JobProgress progress_;
  std::optional<ArenaPlan> waiting_;  // Until the streams of the last attempt have ended.
  SessionStats seen_;
  std::optional<v1::JobStats> stats_;    // As the coordinator says, from DRAINING on, or as seen.
  std::optional<Awaited> worker_error_;  // Of this attempt, until the coordinator speaks.
  std::optional<absl::Status> lost_outputs_;  // Of a download of this attempt that did not get all.
  std::optional<Awaited> unconfirmed_;        // How the job ended, whose rows stand if all come.
  absl::Time outputs_until_ = absl::InfiniteFuture();  // When the job has ended well.
  bool lost_ = false;  // This attempt; the coordinator takes its time to place another.
  bool succeeded_ = false, run_job_open_ = true, ended_ = false;
  int live_streams_ = 0;
  int outputs_missing_ = 0;  // Downloads, and uploads of a shared job, that have not ended well.
  std::optional<absl::Status> failed_;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_SESSION_SESSION_STATE_MACHINE_H_

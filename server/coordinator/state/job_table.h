#ifndef ANNULUS_SERVER_COORDINATOR_STATE_JOB_TABLE_H_
#define ANNULUS_SERVER_COORDINATOR_STATE_JOB_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "annulus/v1/jobs.pb.h"
#include "server/coordinator/state/job_plan.h"
#include "server/coordinator/state/submission.h"

namespace annulus {

enum class CallKind : uint8_t { kWatcher, kOwner, kQuietOwner };

// State of a forward job's kept state.
enum class KeptStatus : uint8_t {
  kNone,     // The job keeps none.
  kAwaited,  // Kept when the job succeeds.
  kHeld,     // Gradients jobs may name it.
  kReleased,
  kExpired,
  kLost,
};
struct KeptState {
  KeptStatus status = KeptStatus::kNone;
  int64_t run = 0;  // The run that holds it; 0: freed.
  absl::Time expires = absl::InfiniteFuture();
  absl::Time expire_time;  // Time of day.
  int32_t users = 0;       // Jobs that have named it and have not ended.
};

// One job, from its submission until it is forgotten.
struct JobRecord {
  int64_t number = 0;  // Grows with each submission.
  std::string id;
  std::string principal;
  // Without the spec after the job has ended and its state is gone.
  std::shared_ptr<const Submission> submission;
  v1::Job::State state = v1::Job::STATE_QUEUED;
  absl::Status error;  // Error of a failed or cancelled job.

  absl::Time create_time, end_time;  // Times of day.
  absl::Time created, deadline, placed, uploaded;
  absl::Time ended = absl::InfiniteFuture();
  absl::Time result_deadline = absl::InfiniteFuture();
  // The time since which no present worker could serve the job.
  absl::Time unplaceable_since = absl::InfiniteFuture();

  int32_t attempt = 0;  // 0: never placed.
  int64_t run = 0;      // 0: none at present.
  std::shared_ptr<const JobPlan> plan;
  int64_t planning = 0;       // Number of the plan that is being made; 0: none.
  int64_t planned_epoch = 0;  // Membership epoch of the plan.
  absl::Status refusal;       // Error of its latest plan; OK: there is one.
  absl::Status lost_cause;    // Why it runs again.
  // The placement, without tickets.
  bool has_placement = false;
  v1::Plan placement;
  v1::JobStats stats;
  KeptState kept;
  int64_t lender = 0;             // The forward job whose state it uses; 0: none.
  bool waits_for_states = false;  // The latest placing found it waiting for a state.
  std::set<int64_t> owners, watchers, quiet;
  // Deadlines of the calls that have joined the job. The job continues without them.
  std::map<int64_t, absl::Time> call_deadlines;
  int64_t last_event = 0;
  // Events for a new call, by event number: the present state, the placement, the ranks that are
  // ready.
  std::map<int64_t, v1::JobEvent> history;

  bool terminal() const { return state >= v1::Job::STATE_SUCCEEDED; }
  bool detached() const { return submission->request.detached(); }
  absl::string_view request_id() const { return submission->request.request_id(); }
};

// All known jobs. Forgets the oldest ended ones.
class JobTable {
 public:
  // The id is new.
  JobRecord& Add(std::string id, std::string principal,
                 std::shared_ptr<const Submission> submission);
  bool Known(absl::string_view id) const { return by_id_.find(id) != by_id_.end(); }
  JobRecord* Find(int64_t number);
  const JobRecord* Find(int64_t number) const;
  // Null also for another principal's job.
  JobRecord* Find(absl::string_view principal, absl::string_view id);
  // The latest job of this request id; null for an empty id.
  JobRecord* FindRequest(absl::string_view principal, absl::string_view request_id);
  JobRecord* FindCall(int64_t call);
  void AddCall(JobRecord& job, int64_t call, CallKind kind);
  // Adds `bytes` for the request of a present call. RemoveCall subtracts them.
  void CountRequest(int64_t call, int64_t bytes);
  void RemoveCall(int64_t call);

  // The job has ended and holds no state (any more). It may be forgotten from `since` on. Until
  // then its ids, execution, error and stats stay. Its spec and its plan, which may be large, are
  // freed.
  void Retire(JobRecord& job, absl::Time since);
  // The job has ended and holds state. It is not active any more until it is retired.
  void Hold(JobRecord& job);
  void Unhold(JobRecord& job, absl::Time now);
  // Forgets jobs that ended before `time`, and the oldest beyond `keep`. Returns the time at which
  // the next one is due.
  absl::Time Forget(absl::Time time, size_t keep);

  // Up to `count` jobs of a principal with numbers below `before`, newest first.
  std::vector<const JobRecord*> List(absl::string_view principal, int64_t before,
                                     size_t count) const;

  // Memory of the requests of jobs that have not ended, and of calls that have joined them.
  int64_t request_bytes() const { return request_bytes_; }
  size_t active() const { return jobs_.size() - retired_.size() - held_; }
  std::map<int64_t, JobRecord>& all() { return jobs_; }
  const std::map<int64_t, JobRecord>& all() const { return jobs_; }

 private:
  struct CallRecord {
    int64_t job = 0;
    int64_t bytes = 0;
  };
  void Erase(int64_t number);

  int64_t last_number_ = 0;
  int64_t request_bytes_ = 0;
  size_t held_ = 0;
  std::map<int64_t, JobRecord> jobs_;
  std::map<std::string, int64_t, std::less<>> by_id_;
  std::map<std::pair<std::string, std::string>, int64_t> by_request_;
  std::map<int64_t, CallRecord> by_call_;
  std::set<std::pair<absl::Time, int64_t>> retired_;  // Since when, and the job.
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_JOB_TABLE_H_

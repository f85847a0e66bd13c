#ifndef ANNULUS_SERVER_COORDINATOR_STATE_RUN_TABLE_H_
#define ANNULUS_SERVER_COORDINATOR_STATE_RUN_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "annulus/control/v1/control.pb.h"
#include "server/coordinator/state/job_plan.h"

namespace annulus {

// One rank of a run.
struct RunRank {
  int64_t worker = 0;
  bool complete = false;  // Inputs are in staging.
  bool prepared = false;
  int32_t segments_done = 0;
  bool output_ready = false;
  bool drained = false;
  bool gone = false;  // Freed, dropped or lost with its worker: it holds nothing.
  control::v1::Prepared preparation;
  v1::ShardReport report;  // Arrives with the outputs.
};

// One attempt of a job on certain workers, from Reserve to the last Dropped. It outlives its job's
// end.
struct RunRecord {
  enum class State : uint8_t {
    kUploading,
    kReady,      // Shards are complete; waits for device memory.
    kPreparing,  // Waits for every rank's Prepared.
    kPrepared,   // Waits for its first segment.
    kRunning,    // Segments are issued; or solo, once the shard is complete.
    kDraining,   // Every rank's outputs are in staging.
    kKept,       // Its job has succeeded; its shards stay to lend their tensors.
    kHalting,    // Ended early: issued segments finish.
    kDropping,   // Waits for every rank's Dropped.
  };

  int64_t number = 0;
  int64_t job = 0;
  std::string job_id;
  std::string principal;
  int32_t attempt = 1;
  int32_t priority = 0;
  State state = State::kUploading;
  int64_t group = 0;  // 0: solo.
  std::shared_ptr<const JobPlan> plan;
  std::vector<RunRank> ranks;  // Ranks that hold rows: the first ranks of the group.
  int32_t steps = 0;
  int32_t segments = 0;  // Known when prepared.
  int32_t issued = 0;    // Segments issued to every rank.
  // CoordinatorTables::last_turn at each issue.
  std::vector<int64_t> turns;
  // Waiting for turns: `waits_since` is the beginning of the present wait, while the run could run
  // and none of its segments does; `waited` is the sum of earlier waits.
  absl::Time waits_since = absl::InfiniteFuture();
  absl::Duration waited;
  absl::Time upload_deadline;
  bool keep = false;      // Its workers hold the shards until Drop.
  int64_t lender = 0;     // The run whose shards lend tensors to this one's; 0: none.
  int32_t borrowers = 0;  // The number of runs that it lends to.

  bool solo() const { return group == 0; }
  bool live() const { return state < State::kKept; }
  // True if the run has not started: it counts as ahead in its group or on its worker.
  bool ahead() const { return state <= State::kPrepared; }
  // True if the run still needs its group's communicator.
  bool needs_group() const {
    return !solo() && state != State::kDraining && state != State::kKept &&
           state != State::kDropping;
  }
  int32_t RankOf(int64_t worker) const;  // -1: no rank that holds something.
  int32_t SegmentsDone() const;          // By every rank that is not gone.
  control::v1::ShardKey Key(int32_t rank) const;
};

const char* RunStateName(RunRecord::State state);

// Runs by number, in the order of their placement.
class RunTable {
 public:
  RunRecord& Add(const std::string& job_id, int32_t attempt);
  void Erase(int64_t number);
  RunRecord* Find(int64_t number);
  const RunRecord* Find(int64_t number) const;
  // The live or dropping run of the shard; null if it is over.
  RunRecord* Find(const control::v1::ShardKey& shard);

  std::map<int64_t, RunRecord>& all() { return runs_; }
  const std::map<int64_t, RunRecord>& all() const { return runs_; }

 private:
  int64_t last_number_ = 0;
  std::map<int64_t, RunRecord> runs_;
  std::map<std::pair<std::string, int32_t>, int64_t> by_shard_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_RUN_TABLE_H_

#ifndef ANNULUS_TESTS_SERVER_COORDINATOR_COORDINATOR_HARNESS_H_
#define ANNULUS_TESTS_SERVER_COORDINATOR_COORDINATOR_HARNESS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/error.h"
#include "server/coordinator/coordinator_state.h"
#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// A coordinator with a manual clock, scripted workers, and calls that record their events. The
// planner is a stand-in: it predicts `plan_seconds` and `device_bytes`, and AUTO takes the largest
// size up to `auto_size`.
class CoordinatorHarness {
 public:
  struct Worker {
    std::string slot, incarnation;
    int64_t connection = 0;  // 0: no stream.
    int64_t term = 0;
    int64_t sent = 0;                                 // Events numbered so far.
    int64_t received = 0;                             // Highest command id.
    std::deque<control::v1::WorkerCommand> commands;  // Not processed yet.
    std::vector<control::v1::WorkerCommand> history;  // All commands.
    std::shared_ptr<const std::string> spec;          // The spec of the last Reserve, shared.
    std::optional<absl::Status> closed;
  };
  struct Call {
    std::vector<v1::JobEvent> events;
    std::optional<absl::Status> finished;
    std::optional<absl::StatusOr<action::AnswerValue>> answer;
  };

  explicit CoordinatorHarness(CoordinatorOptions options = {});

  // Time and events.
  void Handle(Event event);
  void Advance(absl::Duration duration);  // Stops at each timer on the way.
  absl::Time now() const { return now_; }

  // Workers. Advance sends beats for every connected worker that is not in `silent`.
  Worker& AddWorker(const std::string& slot);
  control::v1::WorkerEvent RegisterEvent(const std::string& slot,
                                         const std::string& incarnation) const;
  void Connect(Worker& worker, control::v1::WorkerEvent event);
  void Disconnect(Worker& worker);
  Worker& worker(const std::string& slot) { return workers_[slot]; }
  void Say(Worker& worker, control::v1::WorkerEvent event);  // Numbers the event and sends it.
  std::set<std::string> silent;

  // Answers all commands as a correct worker does: groups form, Prepare and Drop are answered,
  // segments run and give outputs. Commands whose case is in `hold` stay unanswered.
  void Execute();
  std::set<int> hold;
  // Every worker runs its first held segment. False if there is none.
  bool RunOneSegment();
  // Adds `count` workers "w0", "w1" … and forms their groups.
  void Start(int count);

  // Shards and clients.
  void Upload(const std::string& job_id, int32_t attempt = 1);  // Completes all ranks.
  void OutputsReady(const std::string& job_id, int32_t attempt = 1);
  void Fetch(const std::string& job_id, int32_t attempt = 1);  // Drains all ranks.
  // Like Fetch, with one event that also reports that the outputs were ready.
  void FetchAtOnce(const std::string& job_id, absl::Duration age = absl::ZeroDuration());
  static v1::RunJobRequest Request(int32_t world_size, int64_t rows = 16);
  int64_t Run(v1::RunJobRequest request, const std::string& principal = "anonymous",
              absl::Time deadline = absl::InfiniteFuture());
  int64_t NewCall() { return ++last_call_; }
  Call& call(int64_t number) { return calls_[number]; }
  std::string JobOf(int64_t call) const;       // From the call's first event.
  v1::Job::State StateOf(int64_t call) const;  // The last state sent to the call.
  const v1::Plan& Placed(int64_t call) const;
  v1::Job Get(const std::string& job_id);
  const v1::ServerInfo& Info();  // Valid as long as the harness.

  const CoordinatorTables& tables() const { return state_->tables(); }
  CoordinatorState& state() { return *state_; }
  // The first command of this case that a worker got and that no test has taken.
  std::optional<control::v1::WorkerCommand> Take(Worker& worker,
                                                 control::v1::WorkerCommand::CommandCase which);

  // Results of the stand-in planner.
  // plan_job_seconds is the part of plan_seconds that a group adds.
  double plan_seconds = 0.01, plan_job_seconds = 0;
  int64_t plan_pairs = 0;     // Pairs of each rank.
  bool plan_by_rate = false;  // Seconds are plan_pairs at the rate of the request.
  int64_t device_bytes = 1000;
  int32_t auto_size = 1;
  int32_t segments = 1;
  absl::Duration longest_step;
  int32_t steps = 4;  // Steps of a prepared schedule.
  absl::Status plan_error;
  absl::Duration took = absl::Milliseconds(2);  // Running time that workers report.
  absl::Duration waited;                        // Time of waiting for others that workers report.
  mutable double planned_pair_seconds = 0;      // From the last plan request.
  mutable int32_t planned_size = 0;
  mutable int64_t planned_device_limit = 0;
  int plans_made = 0;  // The number of plans made inside Handle.
  // For workers that register later.
  int64_t staging_limit = 1 << 20, device_limit = 1 << 20;
  double cpu_share = 1;
  std::string arithmetic = "cpu/test";
  double bf16_pair_seconds = 0, fp16_pair_seconds = 0, bf16x3_pair_seconds = 0;

  std::vector<bool> readiness;
  std::vector<std::pair<int64_t, PlanRequest>> plans_wanted;
  std::vector<bool> quick_plans;  // For each entry of plans_wanted: True if the plan is quick.
  std::vector<int64_t> plans_forgotten;
  std::vector<action::Log> logged;
  bool stopped = false;

  PlanResult MakePlan(const PlanRequest& request) const;

 private:
  void Perform(Action action);
  void FillOutputReady(const control::v1::ShardKey& shard, control::v1::WorkerEvent* event) const;
  bool ObeyOne(Worker& worker, const control::v1::WorkerCommand& command);
  void SayOfAll(
      const std::string& job_id, int32_t attempt,
      const std::function<void(const control::v1::ShardKey&, control::v1::WorkerEvent*)>& fill);
  void Beat();

  absl::Time now_ = absl::FromUnixSeconds(1000000);
  uint64_t random_ = 0;
  std::unique_ptr<CoordinatorState> state_;
  std::map<std::string, Worker> workers_;
  std::map<int64_t, Call> calls_;
  int64_t last_call_ = 0;
  int64_t last_connection_ = 0;
  int64_t last_incarnation_ = 0;
};

inline std::string ReasonOf(const absl::Status& status) { return DetailOf(status).reason; }

}  // namespace annulus

#endif  // ANNULUS_TESTS_SERVER_COORDINATOR_COORDINATOR_HARNESS_H_

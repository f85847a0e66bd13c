#ifndef ANNULUS_TESTS_SIMULATION_SIM_WORKER_H_
#define ANNULUS_TESTS_SIMULATION_SIM_WORKER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/simulation/agenda.h"
#include "worker/agent/agent_state.h"

namespace annulus {

class SimWorker;

// An error as a worker reports it.
v1::Error SimFailure(const char* reason);
control::v1::WorkerEvent FailedShard(const ShardId& id, const char* reason);

// The simulation as its workers use it.
class SimSurroundings {
 public:
  virtual ~SimSurroundings() = default;
  // Streams to the coordinator.
  virtual void OpenLink(SimWorker& worker) = 0;
  virtual void CloseLink(SimWorker& worker) = 0;
  virtual void SendEvent(SimWorker& worker, control::v1::WorkerEvent event) = 0;
  // All ranks of a group operation must arrive before it is done.
  virtual void Arrive(const std::string& operation, size_t ranks, SimWorker& worker) = 0;
  virtual void Leave(SimWorker& worker) = 0;  // The worker leaves all operations that are not done.
  virtual void OutputsPublished(SimWorker& worker, const ShardId& id) = 0;
  // A lane begins a command.
  virtual void LaneBegins(SimWorker& worker, const control::v1::WorkerCommand& command) = 0;
  virtual void Violation(const std::string& what) = 0;
};

// The real AgentState with simulated memory, lanes and communicators. A process that can crash,
// pause and restart.
class SimWorker {
 public:
  struct Limits {
    int64_t staging = 0;
    int64_t device = 0;
  };
  SimWorker(std::string slot, Limits limits, Agenda* agenda, SimSurroundings* around);

  const std::string& slot() const { return slot_; }
  bool alive() const { return agent_ != nullptr; }
  bool faults = true;       // True if its lane may fail by itself.
  bool frees_late = false;  // A planted bug: reports a shard as freed before it is.

  // The process.
  void Start();
  void Crash();
  void Terminate();
  void Pause(absl::Duration how_long);

  // From the stream.
  void Receive(control::v1::WorkerCommand command);
  void LinkIsClosed(absl::Status status);

  // From clients. No effect if the shard is not open.
  void Upload(const ShardId& id);
  void Abandon(const ShardId& id);
  void Fetch(const ShardId& id);

  // From the surroundings: the operation at which all have arrived is done, or has failed.
  void OperationDone(const std::string& operation);
  void OperationFailed(const std::string& operation);

  int64_t staging_used() const;
  int64_t device_used() const;
  bool holds_nothing() const { return shards_.empty() && lane_.empty(); }
  const AgentState* agent() const { return agent_.get(); }

  // Stands for values on which the real planner and worker agree.
  static int64_t DeviceBytes(int64_t rows) { return 100 + rows; }

 private:
  struct Held {
    control::v1::Reserve reserve;
    int64_t staging = 0, device = 0;
    int64_t device_needed = 0;
    int64_t output = 0;
    int64_t term = 0;  // The term of its Reserve.
    ShardId lender;    // The lender, or an empty id.
    bool ran = false;  // For solo shards.
    bool published = false;
    bool closing = false;
  };

  void Handle(AgentEvent event);
  void Report(control::v1::WorkerEvent fact, absl::Duration typical);
  // Reports to the agent, and to the rest of the worker.
  void Tell(const control::v1::WorkerEvent& fact);
  void Perform(AgentAction action);
  void ScheduleTick();
  // Runs only in this process's life, and not while it is paused.
  void Later(absl::Duration delay, std::function<void()> what);

  void Open(const control::v1::Reserve& reserve);
  void CheckLender(const ShardId& lender, int32_t rank);
  bool Lends(const ShardId& id) const;
  void Prepare(const ShardId& id);
  void RunSolo(const ShardId& id);
  void Publish(const ShardId& id);
  void Close(const ShardId& id);
  void Free(const ShardId& id);
  bool TakeDevice(const ShardId& id);
  void Command(const control::v1::WorkerCommand& command);
  void AbortGroup(const GroupId& group);
  void RunLane();
  void LaneIsDone();
  bool InLane(const ShardId& id) const;

  const std::string slot_;
  const Limits limits_;
  Agenda* const agenda_;
  SimSurroundings* const around_;
  int64_t life_ = 0;
  bool serves_bf16x3_ = false;
  absl::Time paused_until_ = absl::InfinitePast();
  int64_t stream_ = 0;
  int64_t term_ = 0;  // The highest term seen.
  absl::Time tick_at_ = absl::InfiniteFuture();
  std::unique_ptr<AgentState> agent_;
  std::map<ShardId, Held> shards_;
  std::deque<control::v1::WorkerCommand> lane_;  // The first command is running.
  bool lane_busy_ = false;
  std::string operation_;  // The lane's current operation.
  std::set<GroupId> connected_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_SIMULATION_SIM_WORKER_H_

#ifndef ANNULUS_TESTS_SIMULATION_SIM_CLUSTER_H_
#define ANNULUS_TESTS_SIMULATION_SIM_CLUSTER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/coordinator/coordinator_state.h"
#include "tests/simulation/agenda.h"
#include "tests/simulation/coverage.h"
#include "tests/simulation/invariants.h"
#include "tests/simulation/lane_order.h"
#include "tests/simulation/options.h"
#include "tests/simulation/sim_clients.h"
#include "tests/simulation/sim_worker.h"

namespace annulus {

// A whole cluster in one thread: the real coordinator, the real worker agents, streams between them
// with delays and failures, clients and faults. The seed determines everything.
class SimCluster : private SimSurroundings, private ClientSurroundings {
 public:
  explicit SimCluster(SimOptions options);

  // The first error, or OK.
  absl::Status Run();

  const EventCoverage& coverage() const { return coverage_; }
  int64_t events() const { return events_; }
  // Fingerprint of all inputs, actions and states of the coordinator, with their times; set if the
  // options request it.
  size_t fingerprint() const { return fingerprint_; }
  const std::map<std::string, int>& ends() const { return clients_.ends(); }

 private:
  struct Link {
    SimWorker* worker = nullptr;
    bool open = true;
    bool known = false;             // Known to the coordinator.
    absl::Time last_up, last_down;  // Times of the last deliveries, which keep their order.
    absl::Time stalled_until = absl::InfinitePast();
  };

  // Functions of the coordinator.
  void StartCoordinator();
  void CrashCoordinator();
  void Handle(Event event);
  void Perform(Action action);
  void PerformCommand(const action::SendCommand& send);
  void ScheduleTick();
  void CheckAll();
  void Expect(const absl::Status& holds);
  void KeepBytes(const std::map<int64_t, PoolBytes>& before);
  std::map<int64_t, PoolBytes> UsedBytes() const;
  void Mix(const std::string& text);
  PlanResult MakePlan(const PlanRequest& request) const;
  void TellStale();

  // Streams.
  int64_t LinkOf(const SimWorker& worker) const;
  void BreakLink(int64_t number, absl::Status status);
  void SendDown(int64_t number, std::function<void(SimWorker&)> what);

  // Faults and the end.
  void PlanFaults();
  void OneFault();
  void DrainCoordinator();
  void Heal();
  absl::Status CheckAtRest();

  // SimSurroundings.
  void OpenLink(SimWorker& worker) override;
  void CloseLink(SimWorker& worker) override;
  void SendEvent(SimWorker& worker, control::v1::WorkerEvent event) override;
  void Arrive(const std::string& operation, size_t ranks, SimWorker& worker) override;
  void Leave(SimWorker& worker) override;
  void OutputsPublished(SimWorker& worker, const ShardId& id) override;
  void LaneBegins(SimWorker& worker, const control::v1::WorkerCommand& command) override;
  void Violation(const std::string& what) override;

  // ClientSurroundings.
  bool Tell(Event event) override;
  void Upload(const std::string& endpoint, const ShardId& id) override;
  void Abandon(const std::string& endpoint, const ShardId& id) override;
  void Fetch(const std::string& endpoint, const ShardId& id) override;
  void ClientViolation(const std::string& what) override { Violation(what); }

  const SimOptions options_;
  Agenda agenda_;
  CoordinatorOptions coordinator_options_;
  std::unique_ptr<CoordinatorState> coordinator_;
  std::unique_ptr<Invariants> invariants_;
  int64_t life_ = 0;  // Counts coordinator processes.
  absl::Time tick_at_ = absl::InfiniteFuture();
  bool stopped_ = false;
  bool healed_ = false;

  std::map<std::string, std::unique_ptr<SimWorker>> workers_;
  std::map<int64_t, Link> links_;
  int64_t last_link_ = 0;
  SimClients clients_;

  struct Meeting {
    size_t ranks = 0;
    std::map<std::string, SimWorker*> arrived;  // By slot: the same order in every run.
  };
  std::map<std::string, Meeting> meetings_;

  LaneOrder lane_order_;
  std::map<int64_t, control::v1::WorkerCommand> swapped_;  // Delayed commands, by link.
  absl::Time started_;
  int aborts_ = 0;

  std::vector<event::WorkerReported> said_;  // Some past events of workers.
  EventCoverage coverage_;
  int64_t events_ = 0;
  size_t fingerprint_ = 0;
  absl::Status wrong_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_SIMULATION_SIM_CLUSTER_H_

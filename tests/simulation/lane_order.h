#ifndef ANNULUS_TESTS_SIMULATION_LANE_ORDER_H_
#define ANNULUS_TESTS_SIMULATION_LANE_ORDER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// Invariant 13: lanes meet in collective operations, so all lanes of a term follow one order: the
// order in which the coordinator issues commands. A worker without a stream gets its commands
// later, but in the same order.
class LaneOrder {
 public:
  // Call after each event, before its commands are delivered. INTERNAL if no single order contains
  // every worker's order.
  absl::Status Issue(const CoordinatorTables& tables);
  // The worker's lane begins the command.
  absl::Status Begin(const std::string& slot, const control::v1::WorkerCommand& command);

 private:
  // New commands of each worker, named equally for all ranks that run them.
  using Queues = std::map<int64_t, std::deque<std::string>>;

  Queues TakeNew(const CoordinatorTables& tables);
  void Add(const std::string& command) { issued_.emplace(command, issued_.size()); }

  std::map<std::string, int64_t> issued_;                // Position of each command in the order.
  std::map<std::pair<int64_t, int64_t>, int64_t> seen_;  // By term and worker: a command id.
  std::map<std::pair<std::string, int64_t>, int64_t> lane_position_;  // By slot and term.
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_SIMULATION_LANE_ORDER_H_

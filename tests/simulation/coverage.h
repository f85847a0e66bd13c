#ifndef ANNULUS_TESTS_SIMULATION_COVERAGE_H_
#define ANNULUS_TESTS_SIMULATION_COVERAGE_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "server/coordinator/state/coordinator_tables.h"

namespace annulus {

// Counts which events the coordinator received in which states: of the run, group, worker, job,
// call or plan that an event is about, or of the service.
class EventCoverage {
 public:
  // Call before the coordinator handles the event.
  void Note(const CoordinatorTables& tables, const Event& event);
  void Add(const EventCoverage& other);

  // Pairs that the protocol and the worker's state machine allow, but that have not occurred.
  std::vector<std::string> Missing() const;
  // One line for each event: its states with their counts.
  std::string Table() const;

 private:
  void Count(const std::string& event, const std::string& state) { ++counts_[{event, state}]; }
  void NoteWorker(const CoordinatorTables& tables, const event::WorkerReported& said);
  void NoteOfService(const CoordinatorTables& tables, const Event& event);
  // For the job whose kept state `submission` names, if any.
  void NoteState(const std::string& event, const CoordinatorTables& tables,
                 const Submission& submission);

  std::map<std::pair<std::string, std::string>, int64_t> counts_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_SIMULATION_COVERAGE_H_

#ifndef ANNULUS_SERVER_COORDINATOR_STATE_WORKER_TABLE_H_
#define ANNULUS_SERVER_COORDINATOR_STATE_WORKER_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "annulus/control/v1/control.pb.h"
#include "attention/planning/kernel_rates.h"
#include "server/coordinator/state/command.h"
#include "server/coordinator/state/worker_speed_estimator.h"

namespace annulus {

// The commands of one worker incarnation in one term. They are numbered 1, 2, 3, … and kept until
// they are acknowledged, so that a broken stream loses and repeats none.
class CommandLog {
 public:
  // Limits of the kept commands. Specs count, although other logs share them.
  struct Limits {
    size_t commands = 0;
    size_t bytes = 0;
  };
  explicit CommandLog(Limits limits) : limits_(limits) {}

  // Numbers the command and keeps it.
  const Command& Append(Command command);
  // Removes commands up to `id`. Acknowledgements of ids that were never sent are ignored.
  void Acknowledge(int64_t id);
  // The commands to send again, in order.
  const std::deque<Command>& unacknowledged() const { return commands_; }
  int64_t last_id() const { return last_id_; }
  bool overflown() const { return commands_.size() > limits_.commands || bytes_ > limits_.bytes; }

 private:
  Limits limits_;
  int64_t last_id_ = 0;
  size_t bytes_ = 0;
  std::deque<Command> commands_;
};

// One live incarnation of a worker. Its number is never reused, so that messages about a lost
// incarnation find nothing.
struct WorkerRecord {
  explicit WorkerRecord(CommandLog::Limits limits) : log(limits) {}

  int64_t number = 0;
  control::v1::Register info;
  WorkerRates rates;            // info.rates()
  WorkerSpeedEstimators paces;  // Measured over predicted speed of its jobs.
  int64_t connection = 0;       // 0: the stream is broken.
  absl::Time last_heard;
  bool suspect = false;  // Its stream is broken, or it missed beats.
  bool leaving = false;
  bool drain_sent = false;
  // Shards and groups of an earlier term that it has not yet freed.
  std::set<std::string> leftovers;  // Serialized ShardKeys and Generations.
  CommandLog log;
  int64_t events_received = 0;

  const std::string& slot() const { return info.slot(); }
  // True if it may take part in groups.
  bool eligible() const { return !leaving && leftovers.empty(); }
  // True if it may be given new jobs.
  bool ready() const { return eligible() && !suspect; }
};

// The workers that are not lost. At most one incarnation for each slot.
class WorkerTable {
 public:
  // The reference is valid until the worker is erased.
  WorkerRecord& Add(CommandLog::Limits limits);
  void Erase(int64_t number);

  WorkerRecord* Find(int64_t number);
  const WorkerRecord* Find(int64_t number) const;
  const WorkerRecord* BySlot(absl::string_view slot) const;
  WorkerRecord* ByConnection(int64_t connection);

  // Eligible workers by locality, then slot: the order in which groups are formed.
  std::vector<int64_t> LocalityOrder() const;
  int32_t ready_count() const;

  std::map<int64_t, WorkerRecord>& all() { return workers_; }
  const std::map<int64_t, WorkerRecord>& all() const { return workers_; }

 private:
  int64_t last_number_ = 0;
  std::map<int64_t, WorkerRecord> workers_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_WORKER_TABLE_H_

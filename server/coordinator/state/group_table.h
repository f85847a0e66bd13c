#ifndef ANNULUS_SERVER_COORDINATOR_STATE_GROUP_TABLE_H_
#define ANNULUS_SERVER_COORDINATOR_STATE_GROUP_TABLE_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace annulus {

// The laminar family of groups over workers in locality order. The workers are cut into blocks of
// `max_size` (at least 1), the largest number of ranks of a job. The family has each whole block,
// and every aligned run of 2, 4, 8, … workers of a block. Two groups are disjoint, or one contains
// the other. Groups of one are left out: one worker needs no communicator. The largest groups come
// first, then locality order. At most `order.size()` groups.
std::vector<std::vector<int64_t>> GroupFamily(const std::vector<int64_t>& order, int32_t max_size);

// A generation of a group, from OpenGroup to the last GroupClosed.
struct GroupRecord {
  enum class State : uint8_t {
    kOpening,     // Waits for every rank's bootstrap.
    kConnecting,  // Waits for every rank's connection.
    kReady,
    kClosing,   // Not wanted any more; no job uses it.
    kAborting,  // Poisoned, or a member is lost.
  };

  int64_t number = 0;  // Generation.number; the term is the coordinator's.
  State state = State::kOpening;
  std::vector<int64_t> members;         // Worker numbers, by rank.
  std::vector<std::string> slots;       // By rank; stays after a member is lost.
  std::vector<std::string> bootstraps;  // By rank.
  // Live members that have not yet answered the command of the present state.
  std::set<int64_t> awaited;
  bool wanted = true;  // In the present family.
  // Predicted time at which its lanes have nothing left to run, set when the group was opened.
  absl::Time idle_at;

  int32_t RankOf(int64_t worker) const;  // -1: none.
  // True if every rank's bootstrap has arrived.
  bool opened() const { return state == State::kOpening && awaited.empty(); }
  bool live() const { return state != State::kClosing && state != State::kAborting; }
};

const char* GroupStateName(GroupRecord::State state);

// Groups by generation number, in increasing order, and the failed formations of each set of
// members.
class GroupTable {
 public:
  GroupRecord& Add(std::vector<int64_t> members);
  void Erase(int64_t number) { groups_.erase(number); }
  GroupRecord* Find(int64_t number);
  const GroupRecord* Find(int64_t number) const;

  struct Pause {
    int32_t failures = 0;
    absl::Time until = absl::InfinitePast();
    absl::Status formation;  // Latest formation error; OK: it formed, and then broke.
  };
  // Pauses, by members.
  std::map<std::vector<int64_t>, Pause>& pauses() { return pauses_; }
  const std::map<std::vector<int64_t>, Pause>& pauses() const { return pauses_; }

  // The error of forming these members, if none has been formed since; OK otherwise.
  absl::Status FormationError(const std::vector<int64_t>& members) const;

  std::map<int64_t, GroupRecord>& all() { return groups_; }
  const std::map<int64_t, GroupRecord>& all() const { return groups_; }

 private:
  int64_t last_number_ = 0;
  std::map<int64_t, GroupRecord> groups_;
  std::map<std::vector<int64_t>, Pause> pauses_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_GROUP_TABLE_H_

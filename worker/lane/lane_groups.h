#ifndef ANNULUS_WORKER_LANE_LANE_GROUPS_H_
#define ANNULUS_WORKER_LANE_LANE_GROUPS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "worker/agent/agent_values.h"
#include "worker/comm/communicator.h"

namespace annulus {

// The communicators of this worker's groups. The lane uses and destroys them; any thread may abort
// one. Locks ensure that an abort never meets a communicator that is being destroyed. Thread-safe.
class LaneGroups {
  struct Entry;

 public:
  explicit LaneGroups(std::function<absl::Time()> now) : now_(std::move(now)) {}

  // Marks that a thread uses a group, so that an abort must wait for it.
  class Stay {
   public:
    ~Stay();
    Stay(Stay&& other) noexcept = default;
    Stay& operator=(Stay&&) = delete;
    // Valid until Destroy.
    Communicator* communicator() const { return communicator_; }

   private:
    friend class LaneGroups;
    Stay(const LaneGroups* groups, std::shared_ptr<Entry> entry);

    const LaneGroups* groups_;
    std::shared_ptr<Entry> entry_;  // nullptr after a move.
    Communicator* communicator_ = nullptr;
  };

  // A group is known from Add to Remove. Add returns false if it is already known.
  bool Add(const GroupId& id);
  void Remove(const GroupId& id);
  bool known(const GroupId& id) const { return Get(id) != nullptr; }
  std::vector<GroupId> Ids() const;

  // Hands over a communicator. Returns it to the caller, to be destroyed, if the group was aborted
  // or removed meanwhile; otherwise returns nullptr.
  std::unique_ptr<Communicator> Put(const GroupId& id, std::unique_ptr<Communicator> communicator);
  // Lane only. The caller keeps the Stay while it uses the communicator. nullopt if there is no
  // communicator or the group was aborted.
  std::optional<Stay> Enter(const GroupId& id) const;
  // Lane only. Destroys the communicator.
  void Destroy(const GroupId& id);

  // Makes current and later calls on the communicator fail soon.
  void Abort(const GroupId& id);
  bool aborted(const GroupId& id) const;

  // For the watchdog; never blocked by an abort or destructor that hangs. The earliest time since
  // which a thread has stayed in an aborted group: the lane that uses or destroys it, or a thread
  // that aborts it. Groups that wait behind another group's work do not count. bytes_received: the
  // sum over all groups.
  std::optional<absl::Time> OldestAbort() const;
  int64_t bytes_received() const;

 private:
  struct Entry {
    bool aborted = false;  // Guarded by the table's lock, like the next two members.
    int stays = 0;         // The number of threads in the group.
    // The time since which the group is aborted and a thread is in it.
    std::optional<absl::Time> waited_for;
    // Held while a communicator is aborted or removed. Lock order: before the table's lock.
    Mutex use;
    std::unique_ptr<Communicator> communicator;  // Written under both locks.
    int64_t bytes = 0;                           // The last value read, under the table's lock.
  };

  std::shared_ptr<Entry> Get(const GroupId& id) const;
  // Updates waited_for. Call after each change of `aborted` or `stays`.
  void Note(Entry* entry) const REQUIRES(mutex_);

  const std::function<absl::Time()> now_;
  mutable Mutex mutex_;
  std::map<GroupId, std::shared_ptr<Entry>> entries_ GUARDED_BY(mutex_);
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_LANE_LANE_GROUPS_H_

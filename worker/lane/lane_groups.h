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

// The communicators of this worker's groups. The lane uses and destroys them; anybody may abort
// one, which is why there are locks: an abort never meets a communicator that is being destroyed.
// Thread-safe.
class LaneGroups {
  struct Entry;

 public:
  explicit LaneGroups(std::function<absl::Time()> now) : now_(std::move(now)) {}

  // A group that its thread is at: what an abort of it has to wait for.
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
    std::shared_ptr<Entry> entry_;  // Null: moved from.
    Communicator* communicator_ = nullptr;
  };

  // A group is known from Add to Remove. False where it is known already.
  bool Add(const GroupId& id);
  void Remove(const GroupId& id);
  bool known(const GroupId& id) const { return Get(id) != nullptr; }
  std::vector<GroupId> Ids() const;

  // Hands a communicator over. Where the group was aborted meanwhile, or is gone, it comes back for
  // the caller to destroy.
  std::unique_ptr<Communicator> Put(const GroupId& id, std::unique_ptr<Communicator> communicator);
  // The lane only, which alone destroys it: whoever is to use the communicator stays in the group
  // meanwhile. Nothing where there is none, or it was aborted.
  std::optional<Stay> Enter(const GroupId& id) const;
  // The lane only.
  void Destroy(const GroupId& id);

  // Makes its verbs fail soon, now and later.
  void Abort(const GroupId& id);
  bool aborted(const GroupId& id) const;

  // For the watchdog, and so never held up by an abort or a destructor that hangs. Since when
  // somebody is at an aborted group, of all that are so the longest: the lane that is to come back
  // from it, or destroys it, or who aborts it. One that waits behind another group's work is not
  // among them. And bytes received in all groups.
  std::optional<absl::Time> OldestAbort() const;
  int64_t bytes_received() const;

 private:
  struct Entry {
    bool aborted = false;                  // Under the table's lock, as the next two.
    int stays = 0;                         // Who is at it.
    std::optional<absl::Time> waited_for;  // Since when it is aborted and somebody is at it.
    Mutex use;  // Held while a communicator is aborted or taken out. Before the table's.
    std::unique_ptr<Communicator> communicator;  // Written under both locks.
    int64_t bytes = 0;                           // Last seen, under the table's lock.
  };

  std::shared_ptr<Entry> Get(const GroupId& id) const;
  // After any change of them.
  void Note(Entry* entry) const REQUIRES(mutex_);

  const std::function<absl::Time()> now_;
  mutable Mutex mutex_;
  std::map<GroupId, std::shared_ptr<Entry>> entries_ GUARDED_BY(mutex_);
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_LANE_LANE_GROUPS_H_

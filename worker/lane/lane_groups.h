#ifndef ANNULUS_WORKER_LANE_LANE_GROUPS_H_
#define ANNULUS_WORKER_LANE_LANE_GROUPS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
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
 public:
  // A group is known from Add to Remove. False where it is known already.
  bool Add(const GroupId& id);
  void Remove(const GroupId& id);
  bool known(const GroupId& id) const { return Get(id) != nullptr; }
  std::vector<GroupId> Ids() const;

  // Hands a communicator over. Where the group was aborted meanwhile, or is gone, it comes back for
  // the caller to destroy.
  std::unique_ptr<Communicator> Put(const GroupId& id, std::unique_ptr<Communicator> communicator);
  // The lane only, which alone destroys it: valid until Destroy. nullptr where there is none, or it
  // was aborted.
  Communicator* Find(const GroupId& id) const;
  // The lane only.
  void Destroy(const GroupId& id);

  // Makes its verbs fail soon, now and later.
  void Abort(const GroupId& id, absl::Time now);
  bool aborted(const GroupId& id) const;

  // For the watchdog, and so never held up by an abort or a destructor that hangs. When the oldest
  // abort began whose communicator still exists; bytes received in all groups.
  std::optional<absl::Time> OldestAbort() const;
  int64_t bytes_received() const;

 private:
  struct Entry {
    std::optional<absl::Time> aborted;  // Under the table's lock.
    bool exists = false;                // The same.
    Mutex use;  // Held while a communicator is aborted or taken out. Before the table's.
    std::unique_ptr<Communicator> communicator;  // Written under both locks.
    int64_t bytes = 0;                           // Last seen, under the table's lock.
  };

  std::shared_ptr<Entry> Get(const GroupId& id) const;

  mutable Mutex mutex_;
  std::map<GroupId, std::shared_ptr<Entry>> entries_ GUARDED_BY(mutex_);
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_LANE_LANE_GROUPS_H_

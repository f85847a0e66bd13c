#ifndef ANNULUS_SERVER_COORDINATOR_STATE_MEMORY_LEDGER_H_
#define ANNULUS_SERVER_COORDINATOR_STATE_MEMORY_LEDGER_H_

#include <cstdint>
#include <map>
#include <vector>

namespace annulus {

// Bytes of the pools of one worker that jobs use. (The pool of sessions is the worker's own until
// jobs can hold sessions.)
struct PoolBytes {
  int64_t staging = 0;
  int64_t device = 0;
  int64_t kept = 0;  // Of staging: what is to stay when the job has ended.

  PoolBytes& operator+=(const PoolBytes& more);
  PoolBytes& operator-=(const PoolBytes& less);
};

// What each worker's pools hold, by run: the authority of admission. Never more than the limits.
class MemoryLedger {
 public:
  struct Claim {
    int64_t worker = 0;
    PoolBytes bytes;
  };

  void AddWorker(int64_t worker, PoolBytes limits);
  // Its bytes are gone with it.
  void EraseWorker(int64_t worker);

  bool HasRoom(int64_t worker, PoolBytes bytes) const;
  // Whether it has, when nothing else is there.
  bool CouldHold(int64_t worker, PoolBytes bytes) const;
  // All claims, one for each worker, or none: false and unchanged when one does not fit. What a run
  // claims later adds to what it holds.
  bool Reserve(int64_t run, const std::vector<Claim>& claims);
  void ReleaseDevice(int64_t run, int64_t worker);
  void Release(int64_t run, int64_t worker);

  // Zero for unknown workers.
  PoolBytes used(int64_t worker) const;
  PoolBytes limits(int64_t worker) const;
  // Whether any run holds bytes, or a place, on the worker.
  bool idle(int64_t worker) const;

 private:
  struct Account {
    PoolBytes limits;
    PoolBytes used;
    std::map<int64_t, PoolBytes> runs;
  };
  std::map<int64_t, Account> accounts_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_MEMORY_LEDGER_H_

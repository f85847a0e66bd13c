#ifndef ANNULUS_SERVER_COORDINATOR_STATE_MEMORY_LEDGER_H_
#define ANNULUS_SERVER_COORDINATOR_STATE_MEMORY_LEDGER_H_

#include <cstdint>
#include <map>
#include <vector>

namespace annulus {

// Bytes of a worker's pools that jobs use. The worker alone manages the pool of sessions until jobs
// can hold sessions.
struct PoolBytes {
  int64_t staging = 0;
  int64_t device = 0;
  int64_t kept = 0;  // The part of staging that stays after the job's end.

  PoolBytes& operator+=(const PoolBytes& more);
  PoolBytes& operator-=(const PoolBytes& less);
};

// The contents of each worker's pools, by run. Admission relies on it. Never more than the limits.
class MemoryLedger {
 public:
  struct Claim {
    int64_t worker = 0;
    PoolBytes bytes;
  };

  void AddWorker(int64_t worker, PoolBytes limits);
  // Removes the worker with its bytes.
  void EraseWorker(int64_t worker);

  // True if the bytes fit now.
  bool HasRoom(int64_t worker, PoolBytes bytes) const;
  // True if the bytes fit while nothing else is there.
  bool CouldHold(int64_t worker, PoolBytes bytes) const;
  // Reserves all claims, one for each worker, or none: returns false without a change if one does
  // not fit. Later claims of a run add to what it holds.
  bool Reserve(int64_t run, const std::vector<Claim>& claims);
  void ReleaseDevice(int64_t run, int64_t worker);
  void Release(int64_t run, int64_t worker);

  // Zero for unknown workers.
  PoolBytes used(int64_t worker) const;
  PoolBytes limits(int64_t worker) const;
  // True if no run holds bytes, or a place, on the worker.
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

#include "server/coordinator/state/memory_ledger.h"

namespace annulus {

PoolBytes& PoolBytes::operator+=(const PoolBytes& more) {
  staging += more.staging;
  device += more.device;
  kept += more.kept;
  return *this;
}

PoolBytes& PoolBytes::operator-=(const PoolBytes& less) {
  staging -= less.staging;
  device -= less.device;
  kept -= less.kept;
  return *this;
}

void MemoryLedger::AddWorker(int64_t worker, PoolBytes limits) {
  accounts_[worker].limits = limits;
}

void MemoryLedger::EraseWorker(int64_t worker) { accounts_.erase(worker); }

bool MemoryLedger::HasRoom(int64_t worker, PoolBytes bytes) const {
  auto it = accounts_.find(worker);
  if (it == accounts_.end()) return false;
  const Account& account = it->second;
  // Subtractions, because sums of hostile sizes could overflow.
  return bytes.staging <= account.limits.staging - account.used.staging &&
         bytes.device <= account.limits.device - account.used.device &&
         bytes.kept <= account.limits.kept - account.used.kept;
}

bool MemoryLedger::CouldHold(int64_t worker, PoolBytes bytes) const {
  const PoolBytes most = limits(worker);
  return bytes.staging <= most.staging && bytes.device <= most.device && bytes.kept <= most.kept;
}

bool MemoryLedger::Reserve(int64_t run, const std::vector<Claim>& claims) {
  for (const Claim& claim : claims) {
    if (!HasRoom(claim.worker, claim.bytes)) return false;
  }
  for (const Claim& claim : claims) {
    Account& account = accounts_[claim.worker];
    account.runs[run] += claim.bytes;
    account.used += claim.bytes;
  }
  return true;
}

void MemoryLedger::ReleaseDevice(int64_t run, int64_t worker) {
  auto it = accounts_.find(worker);
  if (it == accounts_.end()) return;
  auto held = it->second.runs.find(run);
  if (held == it->second.runs.end()) return;
  it->second.used.device -= held->second.device;
  held->second.device = 0;
}

void MemoryLedger::Release(int64_t run, int64_t worker) {
  auto it = accounts_.find(worker);
  if (it == accounts_.end()) return;
  auto held = it->second.runs.find(run);
  if (held == it->second.runs.end()) return;
  it->second.used -= held->second;
  it->second.runs.erase(held);
}

PoolBytes MemoryLedger::used(int64_t worker) const {
  auto it = accounts_.find(worker);
  return it == accounts_.end() ? PoolBytes() : it->second.used;
}

PoolBytes MemoryLedger::limits(int64_t worker) const {
  auto it = accounts_.find(worker);
  return it == accounts_.end() ? PoolBytes() : it->second.limits;
}

bool MemoryLedger::idle(int64_t worker) const {
  auto it = accounts_.find(worker);
  return it == accounts_.end() || it->second.runs.empty();
}

}  // namespace annulus

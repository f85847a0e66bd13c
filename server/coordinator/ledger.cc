#include "server/coordinator/ledger.h"

namespace annulus {

void Ledger::AddWorker(int64_t worker, PoolBytes limits) { accounts_[worker].limits = limits; }

void Ledger::EraseWorker(int64_t worker) { accounts_.erase(worker); }

bool Ledger::HasRoom(int64_t worker, PoolBytes bytes) const {
  auto it = accounts_.find(worker);
  if (it == accounts_.end()) return false;
  const Account& account = it->second;
  // Subtractions, because sums of hostile sizes could overflow.
  return bytes.staging <= account.limits.staging - account.used.staging &&
         bytes.device <= account.limits.device - account.used.device &&
         bytes.kept <= account.limits.kept - account.used.kept;
}

bool Ledger::CouldHold(int64_t worker, PoolBytes bytes) const {
  const PoolBytes most = limits(worker);
  return bytes.staging <= most.staging && bytes.device <= most.device && bytes.kept <= most.kept;
}

bool Ledger::Reserve(int64_t run, const std::vector<Claim>& claims) {
  for (const Claim& claim : claims) {
    if (!HasRoom(claim.worker, claim.bytes)) return false;
  }
  for (const Claim& claim : claims) {
    Account& account = accounts_[claim.worker];
    PoolBytes& held = account.runs[run];
    held.staging += claim.bytes.staging;
    held.device += claim.bytes.device;
    held.kept += claim.bytes.kept;
    account.used.staging += claim.bytes.staging;
    account.used.device += claim.bytes.device;
    account.used.kept += claim.bytes.kept;
  }
  return true;
}

void Ledger::ReleaseDevice(int64_t run, int64_t worker) {
  auto it = accounts_.find(worker);
  if (it == accounts_.end()) return;
  auto held = it->second.runs.find(run);
  if (held == it->second.runs.end()) return;
  it->second.used.device -= held->second.device;
  held->second.device = 0;
}

void Ledger::Release(int64_t run, int64_t worker) {
  auto it = accounts_.find(worker);
  if (it == accounts_.end()) return;
  auto held = it->second.runs.find(run);
  if (held == it->second.runs.end()) return;
  it->second.used.staging -= held->second.staging;
  it->second.used.device -= held->second.device;
  it->second.used.kept -= held->second.kept;
  it->second.runs.erase(held);
}

PoolBytes Ledger::used(int64_t worker) const {
  auto it = accounts_.find(worker);
  return it == accounts_.end() ? PoolBytes() : it->second.used;
}

PoolBytes Ledger::limits(int64_t worker) const {
  auto it = accounts_.find(worker);
  return it == accounts_.end() ? PoolBytes() : it->second.limits;
}

bool Ledger::idle(int64_t worker) const {
  auto it = accounts_.find(worker);
  return it == accounts_.end() || it->second.runs.empty();
}

}  // namespace annulus

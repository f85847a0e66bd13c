#include "worker/lane/lane_groups.h"

#include <algorithm>
#include <utility>

namespace annulus {

bool LaneGroups::Add(const GroupId& id) {
  MutexLock lock(&mutex_);
  return entries_.emplace(id, std::make_shared<Entry>()).second;
}

void LaneGroups::Remove(const GroupId& id) {
  MutexLock lock(&mutex_);
  entries_.erase(id);
}

std::vector<GroupId> LaneGroups::Ids() const {
  MutexLock lock(&mutex_);
  std::vector<GroupId> ids;
  for (const auto& [id, entry] : entries_) ids.push_back(id);
  return ids;
}

std::shared_ptr<LaneGroups::Entry> LaneGroups::Get(const GroupId& id) const {
  MutexLock lock(&mutex_);
  const auto entry = entries_.find(id);
  return entry == entries_.end() ? nullptr : entry->second;
}

std::unique_ptr<Communicator> LaneGroups::Put(const GroupId& id,
                                              std::unique_ptr<Communicator> communicator) {
  const std::shared_ptr<Entry> entry = Get(id);
  if (entry == nullptr) return communicator;
  MutexLock use(&entry->use);
  MutexLock lock(&mutex_);
  if (entry->aborted.has_value()) return communicator;
  entry->communicator = std::move(communicator);
  entry->exists = true;
  return nullptr;
}

Communicator* LaneGroups::Find(const GroupId& id) const {
  MutexLock lock(&mutex_);
  const auto entry = entries_.find(id);
  if (entry == entries_.end() || entry->second->aborted.has_value()) return nullptr;
  return entry->second->communicator.get();
}

void LaneGroups::Destroy(const GroupId& id) {
  const std::shared_ptr<Entry> entry = Get(id);
  if (entry == nullptr) return;
  std::unique_ptr<Communicator> communicator;
  {
    MutexLock use(&entry->use);
    MutexLock lock(&mutex_);
    communicator = std::move(entry->communicator);
  }
  communicator.reset();
  MutexLock lock(&mutex_);
  entry->exists = false;
}

void LaneGroups::Abort(const GroupId& id, absl::Time now) {
  const std::shared_ptr<Entry> entry = Get(id);
  if (entry == nullptr) return;
  {
    MutexLock lock(&mutex_);
    if (!entry->aborted.has_value()) entry->aborted = now;
  }
  MutexLock use(&entry->use);
  if (entry->communicator != nullptr) entry->communicator->Abort();
}

bool LaneGroups::aborted(const GroupId& id) const {
  MutexLock lock(&mutex_);
  const auto entry = entries_.find(id);
  return entry != entries_.end() && entry->second->aborted.has_value();
}

std::optional<absl::Time> LaneGroups::OldestAbort() const {
  MutexLock lock(&mutex_);
  std::optional<absl::Time> oldest;
  for (const auto& [id, entry] : entries_) {
    if (!entry->aborted.has_value() || !entry->exists) continue;
    oldest = std::min(oldest.value_or(absl::InfiniteFuture()), *entry->aborted);
  }
  return oldest;
}

int64_t LaneGroups::bytes_received() const {
  MutexLock lock(&mutex_);
  int64_t bytes = 0;
  for (const auto& [id, entry] : entries_) {
    if (entry->communicator != nullptr) entry->bytes = entry->communicator->bytes_received();
    bytes += entry->bytes;
  }
  return bytes;
}

}  // namespace annulus

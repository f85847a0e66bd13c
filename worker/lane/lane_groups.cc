#include "worker/lane/lane_groups.h"

#include <algorithm>
#include <utility>

namespace annulus {

LaneGroups::Stay::Stay(const LaneGroups* groups, std::shared_ptr<Entry> entry)
    : groups_(groups), entry_(std::move(entry)) {
  MutexLock lock(&groups_->mutex_);
  communicator_ = entry_->communicator.get();
  ++entry_->stays;
  groups_->Note(entry_.get());
}

LaneGroups::Stay::~Stay() {
  if (entry_ == nullptr) return;
  MutexLock lock(&groups_->mutex_);
  --entry_->stays;
  groups_->Note(entry_.get());
}

void LaneGroups::Note(Entry* entry) const {
  if (!entry->aborted || entry->stays == 0) {
    entry->waited_for.reset();
  } else if (!entry->waited_for.has_value()) {
    entry->waited_for = now_();
  }
}

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
  if (entry->aborted) return communicator;
  entry->communicator = std::move(communicator);
  return nullptr;
}

std::optional<LaneGroups::Stay> LaneGroups::Enter(const GroupId& id) const {
  std::shared_ptr<Entry> entry = Get(id);
  if (entry == nullptr) return std::nullopt;
  Stay stay(this, std::move(entry));
  if (stay.communicator() == nullptr || aborted(id)) return std::nullopt;
  return stay;
}

void LaneGroups::Destroy(const GroupId& id) {
  const std::shared_ptr<Entry> entry = Get(id);
  if (entry == nullptr) return;
  const Stay stay(this, entry);
  std::unique_ptr<Communicator> communicator;
  {
    MutexLock use(&entry->use);
    MutexLock lock(&mutex_);
    communicator = std::move(entry->communicator);
  }
  communicator.reset();
}

void LaneGroups::Abort(const GroupId& id) {
  const std::shared_ptr<Entry> entry = Get(id);
  if (entry == nullptr) return;
  {
    MutexLock lock(&mutex_);
    entry->aborted = true;
  }
  const Stay stay(this, entry);
  MutexLock use(&entry->use);
  if (entry->communicator != nullptr) entry->communicator->Abort();
}

bool LaneGroups::aborted(const GroupId& id) const {
  MutexLock lock(&mutex_);
  const auto entry = entries_.find(id);
  return entry != entries_.end() && entry->second->aborted;
}

std::optional<absl::Time> LaneGroups::OldestAbort() const {
  MutexLock lock(&mutex_);
  std::optional<absl::Time> oldest;
  for (const auto& [id, entry] : entries_) {
    if (!entry->waited_for.has_value()) continue;
    oldest = std::min(oldest.value_or(absl::InfiniteFuture()), *entry->waited_for);
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

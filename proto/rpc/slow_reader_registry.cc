#include "proto/rpc/slow_reader_registry.h"

#include <utility>

namespace annulus {

SlowReaderRegistry& SlowReaderRegistry::Get() {
  static auto* const answers = new SlowReaderRegistry(Limits());
  return *answers;
}

uint64_t SlowReaderRegistry::Add(size_t bytes, std::function<void()> cancel) {
  std::vector<std::function<void()>> cancelled;
  uint64_t added = 0;
  {
    MutexLock lock(&mutex_);
    added = ++last_;
    bytes_ += bytes;
    calls_.emplace(added, Call{bytes, std::move(cancel)});
    cancelled = MakeRoomLocked();
  }
  for (const std::function<void()>& one : cancelled) one();
  return added;
}

void SlowReaderRegistry::Resize(uint64_t call, size_t bytes) {
  std::vector<std::function<void()>> cancelled;
  {
    MutexLock lock(&mutex_);
    const auto it = calls_.find(call);
    if (it == calls_.end()) return;
    bytes_ += bytes - it->second.bytes;
    it->second.bytes = bytes;
    cancelled = MakeRoomLocked();
  }
  for (const std::function<void()>& one : cancelled) one();
}

std::vector<std::function<void()>> SlowReaderRegistry::MakeRoomLocked() {
  std::vector<std::function<void()>> cancelled;
  while (calls_.size() > 1 && (calls_.size() > limits_.calls || bytes_ > limits_.bytes)) {
    const auto oldest = calls_.begin();
    bytes_ -= oldest->second.bytes;
    cancelled.push_back(std::move(oldest->second.cancel));
    calls_.erase(oldest);
  }
  return cancelled;
}

void SlowReaderRegistry::Remove(uint64_t call) {
  std::function<void()> gone;  // Destroyed without the lock.
  MutexLock lock(&mutex_);
  const auto it = calls_.find(call);
  if (it == calls_.end()) return;
  bytes_ -= it->second.bytes;
  gone = std::move(it->second.cancel);
  calls_.erase(it);
}

size_t SlowReaderRegistry::calls() const {
  MutexLock lock(&mutex_);
  return calls_.size();
}

size_t SlowReaderRegistry::bytes() const {
  MutexLock lock(&mutex_);
  return bytes_;
}

}  // namespace annulus

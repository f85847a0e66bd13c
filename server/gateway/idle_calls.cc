#include "server/gateway/idle_calls.h"

#include <cstdint>
#include <map>
#include <utility>

#include "base/mutex.h"

namespace annulus {

struct IdleCalls::State {
  explicit State(size_t limit) : limit(limit) {}

  const size_t limit;
  Mutex mutex;
  std::map<uint64_t, Leave> calls GUARDED_BY(mutex);  // In order of arrival.
  uint64_t last GUARDED_BY(mutex) = 0;
  bool closed GUARDED_BY(mutex) = false;
};

IdleCalls::IdleCalls(size_t limit) : state_(std::make_shared<State>(limit)) {}

std::shared_ptr<void> IdleCalls::Add(Leave leave) {
  uint64_t call = 0;
  Leave oldest;
  {
    MutexLock lock(&state_->mutex);
    if (state_->closed) return nullptr;
    call = ++state_->last;
    state_->calls.emplace(call, std::move(leave));
    if (state_->calls.size() > state_->limit) {
      const auto first = state_->calls.begin();
      oldest = std::move(first->second);
      state_->calls.erase(first);
    }
  }
  if (oldest) oldest(Why::kMadeRoom);
  // Must not be null, as null means that the call must leave.
  return std::shared_ptr<void>(state_.get(), [state = state_, call](void*) {
    Leave gone;  // Destroyed without the lock.
    MutexLock lock(&state->mutex);
    const auto it = state->calls.find(call);
    if (it == state->calls.end()) return;
    gone = std::move(it->second);
    state->calls.erase(it);
  });
}

void IdleCalls::Close() {
  std::map<uint64_t, Leave> calls;
  {
    MutexLock lock(&state_->mutex);
    state_->closed = true;
    calls.swap(state_->calls);
  }
  for (const auto& [call, leave] : calls) leave(Why::kClosed);
}

}  // namespace annulus

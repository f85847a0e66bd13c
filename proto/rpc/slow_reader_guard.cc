#include "proto/rpc/slow_reader_guard.h"

#include <functional>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "proto/rpc/shared_timer.h"
#include "proto/rpc/slow_reader_registry.h"

namespace annulus {

struct SlowReaderGuard::State {
  explicit State(grpc::CallbackServerContext* context) : context(context) {}

  void Cancel() EXCLUDES(mutex) {
    // The lock keeps OnDone from releasing the context meanwhile. TryCancel runs no reaction
    // inside.
    MutexLock lock(&mutex);
    if (context != nullptr) context->TryCancel();
  }
  static std::function<void()> CancelOf(const std::shared_ptr<State>& state) {
    return [weak = std::weak_ptr<State>(state)] {
      if (const std::shared_ptr<State> state = weak.lock()) state->Cancel();
    };
  }
  void ForgetUnread() REQUIRES(mutex) {
    if (unread.has_value()) SlowReaderRegistry::Get().Remove(*unread);
    unread.reset();
  }

  Mutex mutex;
  grpc::CallbackServerContext* context GUARDED_BY(mutex);
  std::optional<SharedTimer> grace GUARDED_BY(mutex);
  std::optional<uint64_t> unread GUARDED_BY(mutex);  // In SlowReaderRegistry.
};

absl::Duration ReadingTime(size_t bytes) {
  return absl::Seconds(static_cast<double>(bytes) / (64 << 10));
}

SlowReaderGuard::SlowReaderGuard(grpc::CallbackServerContext* context)
    : state_(std::make_shared<State>(context)) {}

SlowReaderGuard::~SlowReaderGuard() { Over(); }

void SlowReaderGuard::Begin(absl::Duration patience, size_t bytes) {
  {
    MutexLock lock(&state_->mutex);
    if (state_->context == nullptr || state_->grace.has_value()) return;
    state_->grace.emplace(patience, State::CancelOf(state_));
    state_->grace->Begin();
  }
  Count(bytes);
}

void SlowReaderGuard::Waits(size_t bytes) {
  {
    MutexLock lock(&state_->mutex);
    if (state_->context == nullptr || state_->grace.has_value()) return;
    if (bytes == 0) return state_->ForgetUnread();
  }
  Count(bytes);
}

// Without the lock, because it cancels other calls, each under its own lock.
void SlowReaderGuard::Count(size_t bytes) {
  std::optional<uint64_t> unread;
  {
    MutexLock lock(&state_->mutex);
    unread = state_->unread;
  }
  if (unread.has_value()) return SlowReaderRegistry::Get().Resize(*unread, bytes);
  unread = SlowReaderRegistry::Get().Add(bytes, State::CancelOf(state_));
  MutexLock lock(&state_->mutex);
  state_->unread = unread;
  if (state_->context == nullptr) state_->ForgetUnread();
}

void SlowReaderGuard::Over() {
  MutexLock lock(&state_->mutex);
  state_->context = nullptr;
  if (state_->grace.has_value()) state_->grace->CallOff();
  state_->ForgetUnread();
}

}  // namespace annulus

#include "proto/unread_end.h"

#include <optional>

#include "base/mutex.h"
#include "proto/grace.h"

namespace annulus {

struct UnreadEnd::State {
  explicit State(grpc::CallbackServerContext* context) : context(context) {}
  Mutex mutex;
  grpc::CallbackServerContext* context GUARDED_BY(mutex);
  std::optional<Grace> grace GUARDED_BY(mutex);
};

absl::Duration ReadingTime(size_t bytes) {
  return absl::Seconds(static_cast<double>(bytes) / (64 << 10));
}

UnreadEnd::UnreadEnd(grpc::CallbackServerContext* context)
    : state_(std::make_shared<State>(context)) {}

UnreadEnd::~UnreadEnd() { Over(); }

void UnreadEnd::Begin(absl::Duration patience) {
  MutexLock lock(&state_->mutex);
  if (state_->context == nullptr || state_->grace.has_value()) return;
  state_->grace.emplace(patience, [weak = std::weak_ptr<State>(state_)] {
    const std::shared_ptr<State> state = weak.lock();
    if (state == nullptr) return;
    // Under the lock, which keeps OnDone from letting the context go; no reaction comes inside.
    MutexLock lock(&state->mutex);
    if (state->context != nullptr) state->context->TryCancel();
  });
  state_->grace->Begin();
}

void UnreadEnd::Over() {
  MutexLock lock(&state_->mutex);
  state_->context = nullptr;
  if (state_->grace.has_value()) state_->grace->CallOff();
}

}  // namespace annulus

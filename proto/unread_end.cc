#include "proto/unread_end.h"

#include <optional>

#include "base/mutex.h"
#include "proto/grace.h"
#include "proto/unread_answers.h"

namespace annulus {

struct UnreadEnd::State {
  explicit State(grpc::CallbackServerContext* context) : context(context) {}

  void Cancel() EXCLUDES(mutex) {
    // Under the lock, which keeps OnDone from letting the context go; no reaction comes inside.
    MutexLock lock(&mutex);
    if (context != nullptr) context->TryCancel();
  }

  Mutex mutex;
  grpc::CallbackServerContext* context GUARDED_BY(mutex);
  std::optional<Grace> grace GUARDED_BY(mutex);
  std::optional<uint64_t> unread GUARDED_BY(mutex);  // UnreadAnswers
};

absl::Duration ReadingTime(size_t bytes) {
  return absl::Seconds(static_cast<double>(bytes) / (64 << 10));
}

UnreadEnd::UnreadEnd(grpc::CallbackServerContext* context)
    : state_(std::make_shared<State>(context)) {}

UnreadEnd::~UnreadEnd() { Over(); }

void UnreadEnd::Begin(absl::Duration patience, size_t bytes) {
  const auto cancel = [weak = std::weak_ptr<State>(state_)] {
    if (const std::shared_ptr<State> state = weak.lock()) state->Cancel();
  };
  {
    MutexLock lock(&state_->mutex);
    if (state_->context == nullptr || state_->grace.has_value()) return;
    state_->grace.emplace(patience, cancel);
    state_->grace->Begin();
  }
  // Without the lock: others are cancelled, each under its own.
  const uint64_t unread = UnreadAnswers::Get().Add(bytes, cancel);
  MutexLock lock(&state_->mutex);
  if (state_->context != nullptr) {
    state_->unread = unread;
  } else {
    UnreadAnswers::Get().Remove(unread);
  }
}

void UnreadEnd::Over() {
  MutexLock lock(&state_->mutex);
  state_->context = nullptr;
  if (state_->grace.has_value()) state_->grace->CallOff();
  if (state_->unread.has_value()) UnreadAnswers::Get().Remove(*state_->unread);
  state_->unread.reset();
}

}  // namespace annulus

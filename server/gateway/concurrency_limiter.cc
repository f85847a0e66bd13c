#include "server/gateway/concurrency_limiter.h"

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/steady_time.h"

namespace annulus {

struct ConcurrencyLimiter::State {
  explicit State(int limit) : limit(limit) {}
  const int limit;
  Mutex mutex;
  CondVar left;
  int inside GUARDED_BY(mutex) = 0;
  int leaving GUARDED_BY(mutex) = 0;
};

ConcurrencyLimiter::ConcurrencyLimiter(int limit) : state_(std::make_shared<State>(limit)) {}

absl::StatusOr<std::shared_ptr<void>> ConcurrencyLimiter::Enter() {
  {
    MutexLock lock(&state_->mutex);
    if (state_->inside >= state_->limit) {
      return MakeError(
          absl::StatusCode::kResourceExhausted,
          absl::StrCat("the gateway serves at most ", state_->limit, " calls at once"),
          ErrorDetail{
              "TOO_MANY_CALLS", {{"limit", absl::StrCat(state_->limit)}}, {}, absl::Seconds(1)});
    }
    ++state_->inside;
  }
  return std::shared_ptr<void>(nullptr, [state = state_](void*) {
    MutexLock lock(&state->mutex);
    --state->inside;
    state->left.SignalAll();
  });
}

std::shared_ptr<void> ConcurrencyLimiter::Leave(std::shared_ptr<void> place) {
  if (place.use_count() == 0) return place;  // A place holds no pointer.
  {
    MutexLock lock(&state_->mutex);
    ++state_->leaving;
  }
  return std::shared_ptr<void>(nullptr, [state = state_](void*) {
    MutexLock lock(&state->mutex);
    --state->leaving;
    state->left.SignalAll();
  });
}

bool ConcurrencyLimiter::WaitUntilEmpty(absl::Time deadline) {
  MutexLock lock(&state_->mutex);
  while (state_->inside + state_->leaving > 0) {
    if (!state_->left.WaitFor(&state_->mutex, deadline - SteadyNow())) {
      return state_->inside + state_->leaving == 0;
    }
  }
  return true;
}

}  // namespace annulus

#include "client/reachability.h"

#include <utility>

namespace annulus {

Reachability::Reachability(std::function<bool()> find_out, absl::Duration age,
                           std::function<absl::Time()> now)
    : find_out_(std::move(find_out)), age_(age), now_(std::move(now)) {}

Reachability::~Reachability() {
  std::unique_ptr<CallbackThread> thread;
  {
    MutexLock lock(&mutex_);
    thread = std::move(thread_);
  }
}  // Ends after the search.

std::optional<bool> Reachability::Ask(std::function<void(bool)> later) {
  MutexLock lock(&mutex_);
  if (answer_.has_value() && now_() < known_ + age_) return answer_;
  if (!answer_.has_value()) asking_.push_back(std::move(later));
  if (!std::exchange(searching_, true)) {
    if (thread_ == nullptr) thread_ = std::make_unique<CallbackThread>();
    thread_->Post([this] { Search(); });
  }
  return answer_;
}

void Reachability::Forget() {
  MutexLock lock(&mutex_);
  answer_.reset();
}

void Reachability::Search() {
  const bool found = find_out_();
  std::vector<std::function<void(bool)>> asking;
  {
    MutexLock lock(&mutex_);
    answer_ = found;
    known_ = now_();
    searching_ = false;
    asking.swap(asking_);
  }
  for (const auto& later : asking) later(found);
}

}  // namespace annulus

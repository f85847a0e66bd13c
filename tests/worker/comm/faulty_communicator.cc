#include "tests/worker/comm/faulty_communicator.h"

#include <algorithm>

#include "base/status_macros.h"
#include "base/steady_time.h"

namespace annulus {

absl::Status FaultyCommunicator::DoStart(absl::Span<const SendMessage> sends,
                                         absl::Span<const ReceiveMessage> receives) {
  const int64_t before = messages_;
  messages_ += static_cast<int64_t>(sends.size() + receives.size());
  if (before < faults_.fail_at_message && messages_ >= faults_.fail_at_message) {
    ++failed_;
    return absl::UnavailableError("a fault was asked for");
  }
  const absl::Time now = SteadyNow();
  ready_ = messages_ > before ? now + faults_.delay : now;
  bytes_ = 0;
  for (const ReceiveMessage& m : receives) bytes_ += m.bytes;
  if (faults_.bytes_per_second > 0) {
    link_free_ = std::max(link_free_, now) +
                 absl::Seconds(static_cast<double>(bytes_) / faults_.bytes_per_second);
    ready_ = std::max(ready_, link_free_);
    throttled_bytes_ += bytes_;
  }
  return inner_->Start(sends, receives);
}

absl::Status FaultyCommunicator::DoJoin(absl::Time deadline) {
  RETURN_IF_ERROR(inner_->Join(deadline));
  MutexLock lock(&mutex_);
  if (SteadyNow() < ready_) ++delayed_;
  while (SteadyNow() < ready_) {
    if (aborted()) return absl::AbortedError("Join");
    if (SteadyNow() >= deadline) return absl::DeadlineExceededError("the link is too slow");
    interrupted_.WaitFor(&mutex_, std::min(ready_, deadline) - SteadyNow());
  }
  CountReceived(bytes_);
  return absl::OkStatus();
}

void FaultyCommunicator::Interrupt() {
  inner_->Abort();
  MutexLock lock(&mutex_);
  interrupted_.SignalAll();
}

// An aborted communicator leaves its group at its next call.
void FaultyCommunicator::Leave() {
  inner_->Abort();
  (void)inner_->Start({}, {});
}

}  // namespace annulus

#ifndef ANNULUS_PROTO_RPC_SHARED_TIMER_H_
#define ANNULUS_PROTO_RPC_SHARED_TIMER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/time/time.h"

namespace annulus {

// A wait whose end is told: for an error until a better one comes, for a peer. By the steady clock.
// Most are called off, so that costs no thread a wake: gRPC's alarms wake two. One owner at a time.
class SharedTimer {
 public:
  // `over` comes on a thread that all graces of the process share, so it must not wait; perhaps
  // once more after a CallOff: ask Passed() then.
  SharedTimer(absl::Duration length, std::function<void()> over)
      : length_(length), over_(std::move(over)) {}
  ~SharedTimer() { CallOff(); }
  SharedTimer(const SharedTimer&) = delete;
  SharedTimer& operator=(const SharedTimer&) = delete;

  // From now on; where it has begun before, nothing.
  void Begin();
  void CallOff();
  bool Passed() const { return alarm_.has_value() && *passed_; }

 private:
  const absl::Duration length_;
  const std::function<void()> over_;
  std::shared_ptr<std::atomic<bool>> passed_;             // Of the alarm.
  std::optional<std::pair<absl::Time, uint64_t>> alarm_;  // While it has begun.
};

}  // namespace annulus

#endif  // ANNULUS_PROTO_RPC_SHARED_TIMER_H_

#ifndef ANNULUS_PROTO_RPC_SHARED_TIMER_H_
#define ANNULUS_PROTO_RPC_SHARED_TIMER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "absl/time/time.h"

namespace annulus {

// A wait whose end is told: for an error until a better one comes, for a peer. By the steady clock.
// Most are called off, so that costs no thread a wake: gRPC's alarms wake two. One owner at a time.
class SharedTimer {
 public:
  // `over` runs on a thread that all timers of the process share, so it must not wait. It may run
  // once more after CallOff: a late call must be harmless.
  SharedTimer(absl::Duration length, std::function<void()> over)
      : length_(length), over_(std::move(over)) {}
  ~SharedTimer() { CallOff(); }
  SharedTimer(const SharedTimer&) = delete;
  SharedTimer& operator=(const SharedTimer&) = delete;

  // From now on; where it has begun before, nothing.
  void Begin();
  void CallOff();

 private:
  const absl::Duration length_;
  const std::function<void()> over_;
  std::optional<std::pair<absl::Time, uint64_t>> alarm_;  // While it has begun.
};

}  // namespace annulus

#endif  // ANNULUS_PROTO_RPC_SHARED_TIMER_H_

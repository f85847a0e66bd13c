#ifndef ANNULUS_PROTO_RPC_SHARED_TIMER_H_
#define ANNULUS_PROTO_RPC_SHARED_TIMER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "absl/time/time.h"

namespace annulus {

// A timer that calls a function after a time by the steady clock: for example to send an error
// unless a better one comes, or to give up waiting for a peer. Most timers are called off. Calling
// off costs no thread a wakeup, whereas gRPC's alarms wake two threads. One owner at a time.
class SharedTimer {
 public:
  // `over` runs on a thread that all timers of the process share, so it must not block. It may run
  // once more after CallOff or the destructor has returned. A late call must be harmless: `over`
  // holds only weak references, or checks under the owner's lock whether it still applies.
  SharedTimer(absl::Duration length, std::function<void()> over)
      : length_(length), over_(std::move(over)) {}
  ~SharedTimer() { CallOff(); }
  SharedTimer(const SharedTimer&) = delete;
  SharedTimer& operator=(const SharedTimer&) = delete;

  // Starts the timer. Does nothing if it has started before.
  void Begin();
  // Stops the timer. `over` may already be running on the shared thread, or start once more.
  void CallOff();

 private:
  const absl::Duration length_;
  const std::function<void()> over_;
  std::optional<std::pair<absl::Time, uint64_t>> alarm_;  // Present while the timer runs.
};

}  // namespace annulus

#endif  // ANNULUS_PROTO_RPC_SHARED_TIMER_H_

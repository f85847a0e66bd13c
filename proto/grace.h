#ifndef ANNULUS_PROTO_GRACE_H_
#define ANNULUS_PROTO_GRACE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "grpcpp/alarm.h"

namespace annulus {

// A wait whose end is told: for an error until a better one comes, for a peer. By the steady clock.
// One owner at a time.
class Grace {
 public:
  // `over` comes on a thread of gRPC, perhaps once more after a CallOff: ask Passed() then.
  Grace(absl::Duration length, std::function<void()> over)
      : length_(length), over_(std::move(over)) {}

  // From now on; where it has begun before, nothing.
  void Begin();
  void CallOff() { alarm_.reset(); }
  bool Passed() const { return alarm_ != nullptr && *passed_; }

 private:
  const absl::Duration length_;
  const std::function<void()> over_;
  std::shared_ptr<std::atomic<bool>> passed_;  // Of the alarm.
  std::unique_ptr<grpc::Alarm> alarm_;         // While it has begun.
};

}  // namespace annulus

#endif  // ANNULUS_PROTO_GRACE_H_

#ifndef ANNULUS_SERVER_GATEWAY_IDLE_CALLS_H_
#define ANNULUS_SERVER_GATEWAY_IDLE_CALLS_H_

#include <cstddef>
#include <functional>
#include <memory>

namespace annulus {

// Open calls that wait for their callers' next message. Their number is limited: a call above the
// limit displaces the one that has waited longest. Thread-safe.
class IdleCalls {
 public:
  explicit IdleCalls(size_t limit);

  enum class Why { kMadeRoom, kClosed };
  using Leave = std::function<void(Why)>;
  // Adds a call. It rests until the last copy of the result is destroyed, which may be after this
  // object. Null: the call must leave, as Close was called. `leave` ends the call. It is called at
  // most once, by a thread that adds another call or closes, perhaps while the last copy is
  // destroyed or just after.
  std::shared_ptr<void> Add(Leave leave);
  // Ends all resting calls; later ones must leave at once.
  void Close();

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_GATEWAY_IDLE_CALLS_H_

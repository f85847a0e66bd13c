#ifndef ANNULUS_SERVER_GATEWAY_IDLE_CALLS_H_
#define ANNULUS_SERVER_GATEWAY_IDLE_CALLS_H_

#include <cstddef>
#include <functional>
#include <memory>

namespace annulus {

// Calls that are open and have nothing to do until their callers say more. Only so many rest: who
// comes then sends the one away that has rested longest. Thread-safe.
class IdleCalls {
 public:
  explicit IdleCalls(size_t limit);

  enum class Why { kMadeRoom, kClosed };
  using Leave = std::function<void(Why)>;
  // A call rests until the last copy of what comes back goes, which may be after this object; null:
  // it must leave, for all have. Meanwhile `leave` is called, at most once, by whoever adds another
  // or closes, perhaps while the last copy goes or just after: it ends the call.
  std::shared_ptr<void> Add(Leave leave);
  // All leave, and nobody rests any more.
  void Close();

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_GATEWAY_IDLE_CALLS_H_

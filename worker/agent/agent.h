#ifndef ANNULUS_WORKER_AGENT_AGENT_H_
#define ANNULUS_WORKER_AGENT_AGENT_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/serial_executor.h"
#include "worker/agent/agent_state.h"
#include "worker/agent/agent_values.h"

namespace annulus {

// What is around AgentState: one mailbox, turns on the threads that post, a clock, and somebody who
// carries the actions out. Thread-safe.
class Agent {
 public:
  struct Options {
    AgentState::Options state;
    std::function<absl::Time()> now;
    // Called one at a time, in order, on a thread that posts or on the clock's; must not block.
    std::function<void(const AgentAction&)> perform;
    // The same way, about every `housekeeping_interval`.
    std::function<void()> housekeeping;
    absl::Duration housekeeping_interval = absl::Seconds(1);
    // More events than this waiting means that the process no longer works: `overflow` ends it.
    size_t max_waiting = 100000;
    std::function<void()> overflow;
  };

  explicit Agent(Options options);
  ~Agent();

  void Start();
  void Post(AgentEvent event);
  // The same, but never handled on this thread: for who may hold locks that actions take.
  void PostAside(AgentEvent event);
  // Post in two parts, for who has something more urgent to do between them.
  void Enqueue(AgentEvent event);
  void Wake() { turns_.Take(); }
  // Grows with every turn, of which there is one a second at the least. Any thread.
  int64_t turns() const { return turns_had_.load(std::memory_order_relaxed); }
  // No action is carried out once it has returned; Post does nothing then. Not from an action.
  void Stop();

 private:
  // Each with the turn.
  bool HandleNext();
  void Tick();
  void Handle(const AgentEvent& event, absl::Time now);

  const Options options_;
  Mutex mutex_;
  std::deque<AgentEvent> mailbox_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::atomic<int64_t> turns_had_{0};
  // Of who has the turn.
  AgentState state_;
  absl::Time housekeeping_ = absl::InfinitePast();
  SerialExecutor turns_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_AGENT_AGENT_H_

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

// Runs AgentState: one mailbox, a timer, and `perform` for its actions. Turns run on the threads
// that post. Thread-safe.
class Agent {
 public:
  struct Options {
    AgentState::Options state;
    std::function<absl::Time()> now;
    // Executes one action. Called for one action at a time, in order, on a posting thread or the
    // timer's. Must not block.
    std::function<void(const AgentAction&)> perform;
    // Called like `perform`, about every `housekeeping_interval`.
    std::function<void()> housekeeping;
    absl::Duration housekeeping_interval = absl::Seconds(1);
    // Limit of waiting events. More mean that the process is stuck: `overflow` ends it.
    size_t max_waiting = 100000;
    std::function<void()> overflow;
  };

  explicit Agent(Options options);
  ~Agent();

  void Start();
  void Post(AgentEvent event);
  // Like Post, but never handles the event on this thread. For callers that may hold locks that
  // actions take.
  void PostAside(AgentEvent event);
  // Post in two parts, for callers that do something more urgent in between.
  void Enqueue(AgentEvent event);
  void Wake() { turns_.Take(); }
  // The number of turns so far; at least one more each second. Any thread.
  int64_t turns() const { return turns_had_.load(std::memory_order_relaxed); }
  // After Stop, no action is executed and Post has no effect. Must not be called from an action.
  void Stop();

 private:
  // Called only by the thread that has the turn.
  bool HandleNext();
  void Tick();
  void Handle(const AgentEvent& event, absl::Time now);

  const Options options_;
  Mutex mutex_;
  std::deque<AgentEvent> mailbox_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::atomic<int64_t> turns_had_{0};
  // Used only by the thread that has the turn.
  AgentState state_;
  absl::Time housekeeping_ = absl::InfinitePast();
  SerialExecutor turns_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_AGENT_AGENT_H_

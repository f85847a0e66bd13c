#ifndef ANNULUS_WORKER_AGENT_AGENT_H_
#define ANNULUS_WORKER_AGENT_AGENT_H_

#include <deque>
#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "worker/agent/agent_state.h"
#include "worker/agent/agent_values.h"

namespace annulus {

// The thread around AgentState: one mailbox, a clock that wakes it, and somebody who carries the
// actions out. Thread-safe.
class Agent {
 public:
  struct Options {
    AgentState::Options state;
    std::function<absl::Time()> now;
    // Called on the agent's thread, one at a time, in order; must not block.
    std::function<void(const AgentAction&)> perform;
    // The same thread, about every `housekeeping_interval`.
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
  // The same in two parts, for who has something more urgent to do between them.
  void Enqueue(AgentEvent event);
  void Wake() { changed_.Signal(); }
  // No action is carried out once it has returned; Post does nothing then. Not on the agent's
  // thread.
  void Stop();

 private:
  void Loop();
  void Perform(const AgentActions& actions);

  const Options options_;
  AgentState state_;  // The thread's.
  Mutex mutex_;
  CondVar changed_;
  std::deque<AgentEvent> mailbox_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_AGENT_AGENT_H_

#include "worker/agent/agent.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace annulus {

Agent::Agent(Options options) : options_(std::move(options)), state_(options_.state) {}

Agent::~Agent() { Stop(); }

void Agent::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  changed_.SignalAll();
  if (thread_.joinable()) thread_.join();
}

void Agent::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void Agent::Post(AgentEvent event) {
  Enqueue(std::move(event));
  Wake();
}

void Agent::Enqueue(AgentEvent event) {
  bool full = false;
  {
    MutexLock lock(&mutex_);
    if (stopping_) return;
    mailbox_.push_back(std::move(event));
    full = mailbox_.size() > options_.max_waiting;
  }
  if (full) options_.overflow();
}

void Agent::Perform(const AgentActions& actions) {
  for (const AgentAction& action : actions) options_.perform(action);
}

void Agent::Loop() {
  Perform(state_.Start(options_.now()));
  absl::Time housekeeping = options_.now();
  while (true) {
    std::optional<AgentEvent> event;
    {
      MutexLock lock(&mutex_);
      while (mailbox_.empty() && !stopping_) {
        const absl::Time now = options_.now();
        const absl::Time wake = std::min(state_.NextWake(), housekeeping);
        if (wake <= now) break;
        changed_.WaitFor(&mutex_, wake - now);
      }
      if (stopping_) return;
      if (!mailbox_.empty()) {
        event = std::move(mailbox_.front());
        mailbox_.pop_front();
      }
    }
    const absl::Time now = options_.now();
    if (now >= housekeeping) {
      options_.housekeeping();
      housekeeping = now + options_.housekeeping_interval;
    }
    Perform(state_.Handle(event.has_value() ? *std::move(event) : AgentEvent(Ticked{}), now));
  }
}

}  // namespace annulus

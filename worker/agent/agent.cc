#include "worker/agent/agent.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace annulus {

Agent::Agent(Options options)
    : options_(std::move(options)),
      state_(options_.state),
      turns_({[this] { return HandleNext(); }, [this] { Tick(); },
              [this] { return std::min(state_.NextWake(), housekeeping_); }, options_.now}) {}

Agent::~Agent() { Stop(); }

void Agent::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  turns_.Stop();
}

void Agent::Start() {
  for (const AgentAction& action : state_.Start(options_.now())) options_.perform(action);
  turns_.Start();
}

void Agent::Post(AgentEvent event) {
  Enqueue(std::move(event));
  Wake();
}

void Agent::PostAside(AgentEvent event) {
  Enqueue(std::move(event));
  turns_.Ask();
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

bool Agent::HandleNext() {
  std::optional<AgentEvent> event;
  {
    MutexLock lock(&mutex_);
    if (stopping_ || mailbox_.empty()) return false;
    event = std::move(mailbox_.front());
    mailbox_.pop_front();
  }
  Handle(*event, options_.now());
  return true;
}

void Agent::Tick() {
  const absl::Time now = options_.now();
  if (now >= housekeeping_) {
    options_.housekeeping();
    housekeeping_ = now + options_.housekeeping_interval;
  }
  Handle(Ticked{}, now);
}

void Agent::Handle(const AgentEvent& event, absl::Time now) {
  for (const AgentAction& action : state_.Handle(event, now)) options_.perform(action);
  turns_had_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace annulus

#include "server/services/brain.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "server/coordinator/errors.h"

namespace annulus {
namespace {

// The thread looks up at least this often, so that liveness can be seen.
constexpr absl::Duration kLongestSleep = absl::Seconds(1);

int64_t SteadyNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Brain::Brain(Options options)
    : options_(std::move(options)),
      planners_(options_.planner_threads, options_.coordinator.max_queued_jobs, options_.plan),
      last_look_ns_(SteadyNanoseconds()),
      state_(options_.coordinator, options_.random, options_.plan, options_.clock()),
      thread_([this] { Run(); }) {}

Brain::~Brain() { Stop(); }

bool Brain::Post(Event event) { return PostMail({std::move(event), 0, nullptr, nullptr}); }

bool Brain::PostCall(int64_t call, std::shared_ptr<CallSink> sink, Event event) {
  return PostMail({std::move(event), call, std::move(sink), nullptr});
}

bool Brain::PostLink(int64_t connection, std::shared_ptr<LinkSink> sink, Event event) {
  return PostMail({std::move(event), connection, nullptr, std::move(sink)});
}

bool Brain::PostMail(Mail mail) {
  {
    MutexLock lock(&mutex_);
    if (stopping_ || mail_.size() >= options_.max_mail) return false;
    mail_.push_back(std::move(mail));
  }
  changed_.Signal();
  return true;
}

std::deque<Brain::Mail> Brain::WaitForMail(bool* stop) {
  const absl::Duration wait =
      std::clamp(state_.NextWakeup() - options_.clock(), absl::ZeroDuration(), kLongestSleep);
  MutexLock lock(&mutex_);
  // One wait is enough: a wake-up for no reason only looks at the timers early.
  if (mail_.empty() && !stopping_ && wait > absl::ZeroDuration()) changed_.WaitFor(&mutex_, wait);
  *stop = stopping_;
  return std::exchange(mail_, {});
}

void Brain::Run() {
  bool stop = false;
  while (!stop) {
    std::deque<Mail> mail = WaitForMail(&stop);
    last_look_ns_ = SteadyNanoseconds();
    if (mail.empty()) mail.push_back({event::Tick{}, 0, nullptr, nullptr});
    for (Mail& one : mail) Handle(std::move(one));
  }
  EndAll();
}

void Brain::Handle(Mail mail) {
  if (mail.call != nullptr) calls_[mail.number] = std::move(mail.call);
  if (mail.link != nullptr) links_[mail.number] = std::move(mail.link);
  // Whoever is gone hears nothing more.
  if (const auto* gone = std::get_if<event::CallGone>(&mail.event)) calls_.erase(gone->call);
  if (const auto* gone = std::get_if<event::WorkerGone>(&mail.event))
    links_.erase(gone->connection);
  for (Action& action : state_.Handle(std::move(mail.event), options_.clock())) {
    Perform(std::move(action));
  }
}

void Brain::Perform(Action action) {
  struct Performer {
    Brain& brain;
    void operator()(action::SendCommand& a) {
      auto it = brain.links_.find(a.connection);
      if (it != brain.links_.end()) it->second->Send(std::move(a.command));
    }
    void operator()(action::CloseConnection& a) {
      auto it = brain.links_.find(a.connection);
      if (it == brain.links_.end()) return;
      it->second->Close(a.status);
      brain.links_.erase(it);
    }
    void operator()(action::SendEvent& a) {
      auto it = brain.calls_.find(a.call);
      if (it != brain.calls_.end()) it->second->Send(std::move(a.event));
    }
    void operator()(action::FinishCall& a) {
      auto it = brain.calls_.find(a.call);
      if (it == brain.calls_.end()) return;
      it->second->Finish(a.status);
      brain.calls_.erase(it);
    }
    void operator()(action::Answer& a) {
      auto it = brain.calls_.find(a.call);
      if (it == brain.calls_.end()) return;
      it->second->Answer(std::move(a.value));
      brain.calls_.erase(it);
    }
    void operator()(action::MakePlan& a) {
      const int64_t plan = a.plan;
      const bool taken = brain.planners_.Post(
          std::move(a.request), [this_brain = &brain, plan](PlanResult result) {
            this_brain->Post(event::Planned{plan, std::move(result)});
          });
      if (!taken) {
        brain.Post(event::Planned{plan, QueueFullError(brain.options_.coordinator.max_queued_jobs,
                                                       brain.options_.coordinator.retry_after)});
      }
    }
    void operator()(action::SetReady& a) { brain.options_.on_ready(a.ready); }
    void operator()(action::Stopped&) { brain.options_.on_stopped(); }
    void operator()(action::Log& a) { WriteLogIfEnabled(a); }
    static void WriteLogIfEnabled(const action::Log& a) { LogAt(a.level, a.job, a.text); }
  };
  std::visit(Performer{*this}, action);
}

void Brain::EndAll() {
  const absl::Status status = DrainingError(options_.coordinator.retry_after);
  for (auto& [number, call] : std::exchange(calls_, {})) call->Finish(status);
  for (auto& [number, link] : std::exchange(links_, {})) link->Close(status);
}

void Brain::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  changed_.Signal();
  if (thread_.joinable()) thread_.join();
  planners_.Stop();
}

bool Brain::FreshWithin(absl::Duration age) const {
  return SteadyNanoseconds() - last_look_ns_ <= absl::ToInt64Nanoseconds(age);
}

}  // namespace annulus

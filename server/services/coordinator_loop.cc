#include "server/services/coordinator_loop.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/log.h"
#include "server/coordinator/job_view.h"
#include "server/coordinator/state/errors.h"

namespace annulus {
namespace {

template <typename... Kinds>
bool IsOneOf(const Event& event) {
  return (std::holds_alternative<Kinds>(event) || ...);
}

// CallGone is not among them, because a call's end must stay behind its beginning.
bool GoesFirst(const Event& event) {
  return IsOneOf<event::WorkerReported, event::WorkerGone, event::Planned, event::Drain>(event);
}

bool EndsSomething(const Event& event) {
  return IsOneOf<event::CallGone, event::WorkerGone, event::Planned, event::Drain>(event);
}

int64_t SteadyNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

CoordinatorLoop::CoordinatorLoop(Options options)
    : options_(std::move(options)),
      last_look_ns_(SteadyNanoseconds()),
      state_(options_.coordinator, options_.random, options_.plan, options_.clock()),
      turns_(TurnsOptions()),
      planners_(options_.planner_threads, options_.plan) {
  turns_.Start();
}

CoordinatorLoop::~CoordinatorLoop() { Stop(); }

SerialExecutor::Options CoordinatorLoop::TurnsOptions() {
  SerialExecutor::Options turns;
  turns.work = [this] { return HandleNext(); };
  turns.tick = [this] { Handle({event::Tick{}}); };
  turns.wake = [this] { return state_.NextWakeup(); };
  turns.now = options_.clock;
  turns.after = [this] { RunAfterTurn(); };
  return turns;
}

absl::Status CoordinatorLoop::Post(Event event) {
  return PostMail({std::move(event), 0, nullptr, nullptr, absl::InfinitePast()});
}

absl::Status CoordinatorLoop::PostCall(int64_t call, std::shared_ptr<CallSink> sink, Event event) {
  return PostMail({std::move(event), call, std::move(sink), nullptr, absl::InfinitePast()});
}

absl::Status CoordinatorLoop::PostLink(int64_t connection, std::shared_ptr<LinkSink> sink,
                                       Event event) {
  return PostMail({std::move(event), connection, nullptr, std::move(sink), absl::InfinitePast()});
}

absl::Status CoordinatorLoop::PostMail(Mail mail) {
  const bool first = GoesFirst(mail.event);
  if (first) mail.posted = options_.clock();
  {
    MutexLock lock(&mutex_);
    std::deque<Mail>& box = first ? worker_mail_ : client_mail_;
    const absl::Duration retry_after = options_.coordinator.retry_after;
    if (stopping_) return DrainingError(retry_after);
    if (box.size() >= options_.max_mail && !EndsSomething(mail.event)) {
      return MailboxFullError(options_.max_mail, retry_after);
    }
    box.push_back(std::move(mail));
  }
  turns_.Take();
  return absl::OkStatus();
}

std::optional<CoordinatorLoop::Mail> CoordinatorLoop::TakeMail() {
  MutexLock lock(&mutex_);
  for (std::deque<Mail>* box : {&worker_mail_, &client_mail_}) {
    if (box->empty()) continue;
    Mail mail = std::move(box->front());
    box->pop_front();
    return mail;
  }
  return std::nullopt;
}

bool CoordinatorLoop::HandleNext() {
  std::optional<Mail> mail = TakeMail();
  if (!mail.has_value()) return false;
  Handle(*std::move(mail));
  return true;
}

void CoordinatorLoop::Handle(Mail mail) {
  last_look_ns_ = SteadyNanoseconds();
  if (mail.call != nullptr) calls_[mail.number] = std::move(mail.call);
  if (mail.link != nullptr) links_[mail.number] = std::move(mail.link);
  // A call or stream that is gone receives no more messages.
  if (const auto* gone = std::get_if<event::CallGone>(&mail.event)) calls_.erase(gone->call);
  if (const auto* gone = std::get_if<event::WorkerGone>(&mail.event))
    links_.erase(gone->connection);
  const absl::Time now =
      mail.posted == absl::InfinitePast() ? options_.clock() : std::exchange(mail.posted, {});
  state_.SetTimeOfDay(options_.wall() - options_.clock());
  std::vector<Action> actions = state_.Handle(std::move(mail.event), now);
  for (size_t i = 0; i < actions.size(); ++i) {
    const bool pair = i + 1 < actions.size() && PerformLast(&actions[i], actions[i + 1]);
    pair ? void(++i) : Perform(std::move(actions[i]));
  }
}

bool CoordinatorLoop::PerformLast(Action* action, const Action& next) {
  auto* event = std::get_if<action::SendEvent>(action);
  const auto* end = std::get_if<action::FinishCall>(&next);
  if (event == nullptr || end == nullptr || event->call != end->call || !end->status.ok()) {
    return false;
  }
  const auto it = calls_.find(event->call);
  if (it == calls_.end()) return true;
  it->second->SendLast(std::move(event->event));
  calls_.erase(it);
  return true;
}

void CoordinatorLoop::Perform(Action action) {
  struct Performer {
    CoordinatorLoop& loop;
    void operator()(action::SendCommand& a) {
      auto it = loop.links_.find(a.connection);
      if (it != loop.links_.end()) it->second->Send(std::move(a.command));
    }
    void operator()(action::CloseConnection& a) {
      auto it = loop.links_.find(a.connection);
      if (it == loop.links_.end()) return;
      it->second->Close(a.status);
      loop.links_.erase(it);
    }
    void operator()(action::SendEvent& a) {
      auto it = loop.calls_.find(a.call);
      if (it != loop.calls_.end()) it->second->Send(std::move(a.event));
    }
    void operator()(action::FinishCall& a) {
      auto it = loop.calls_.find(a.call);
      if (it == loop.calls_.end()) return;
      it->second->Finish(a.status);
      loop.calls_.erase(it);
    }
    void operator()(action::Answer& a) {
      auto it = loop.calls_.find(a.call);
      if (it == loop.calls_.end()) return;
      it->second->Answer(std::move(a.value));
      loop.calls_.erase(it);
    }
    void operator()(action::MakePlan& a) {
      const int64_t plan = a.plan;
      loop.planners_.Post({a.dry_run, plan, a.quick}, std::move(a.request),
                          [this_loop = &loop, plan](PlanResult result) {
                            this_loop->Post(event::Planned{plan, std::move(result)}).IgnoreError();
                          });
    }
    void operator()(action::ForgetPlan& a) { loop.planners_.Forget(a.plan); }
    void operator()(action::SetReady& a) { loop.options_.on_ready(a.ready); }
    void operator()(action::Stopped&) { loop.options_.on_stopped(); }
    void operator()(action::Log& a) {
      if (!LogEnabled(a.level)) return;
      if (a.plan == nullptr) return WriteLog(a.level, a.job, a.text);
      LogAt(a.level, a.job, a.text, WayText(a.plan->execution, a.plan->cost));
      if (!LogEnabled(LogLevel::kDebug)) return;
      for (const Candidate& way : a.plan->rejected) LogDebug(a.job, RejectedText(way));
    }
  };
  std::visit(Performer{*this}, action);
}

void CoordinatorLoop::EndAll() {
  const absl::Status status = DrainingError(options_.coordinator.retry_after);
  for (auto& [number, call] : std::exchange(calls_, {})) call->Finish(status);
  for (auto& [number, link] : std::exchange(links_, {})) link->Close(status);
}

void CoordinatorLoop::AfterTurn(std::function<void()> work) {
  MutexLock lock(&mutex_);
  after_turn_.push_back(std::move(work));
}

void CoordinatorLoop::RunAfterTurn() {
  // Work that posts enters this function again. Jobs that end one another would otherwise nest
  // without bound.
  thread_local const CoordinatorLoop* running = nullptr;
  if (running == this) return;
  const CoordinatorLoop* const outer = std::exchange(running, this);
  for (;;) {
    std::function<void()> work;
    {
      MutexLock lock(&mutex_);
      if (after_turn_.empty()) break;
      work = std::move(after_turn_.front());
      after_turn_.pop_front();
    }
    work();
  }
  running = outer;
}

void CoordinatorLoop::Stop() {
  {
    MutexLock lock(&mutex_);
    if (std::exchange(stopping_, true)) return;
  }
  turns_.Stop();
  while (HandleNext()) {
  }
  EndAll();
  RunAfterTurn();
  planners_.Stop();
}

bool CoordinatorLoop::FreshWithin(absl::Duration age) const {
  return SteadyNanoseconds() - last_look_ns_ <= absl::ToInt64Nanoseconds(age);
}

}  // namespace annulus

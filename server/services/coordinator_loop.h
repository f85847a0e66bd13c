#ifndef ANNULUS_SERVER_SERVICES_COORDINATOR_LOOP_H_
#define ANNULUS_SERVER_SERVICES_COORDINATOR_LOOP_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/serial_executor.h"
#include "base/steady_time.h"
#include "server/coordinator/coordinator_state.h"
#include "server/services/planner_pool.h"

namespace annulus {

// Receiver of the coordinator's messages for one client call. One thread at a time calls it, and it
// must not block that thread. Finish, SendLast or Answer is the last call.
class CallSink {
 public:
  using Value = action::AnswerValue;
  virtual ~CallSink() = default;
  virtual void Send(v1::JobEvent event) = 0;
  virtual void Finish(const absl::Status& status) = 0;
  // Send, then Finish with OK.
  virtual void SendLast(v1::JobEvent event) {
    Send(std::move(event));
    Finish(absl::OkStatus());
  }
  virtual void Answer(absl::StatusOr<Value> value) = 0;
};

// Receiver of the coordinator's messages for one worker's stream. Close is the last call.
class LinkSink {
 public:
  virtual ~LinkSink() = default;
  virtual void Send(Command command) = 0;
  virtual void Close(const absl::Status& status) = 0;
};

// Runs the coordinator's state machine with a mailbox and timers. One event is handled at a time,
// by the thread that posts; a thread of its own serves the timers. It has no gRPC, so that
// everything with state is tested without gRPC.
class CoordinatorLoop {
 public:
  struct Options {
    CoordinatorOptions coordinator;
    PlanFunction plan;
    int planner_threads = 1;
    std::function<uint64_t()> random;
    // Clock of timers, leases and deadlines. It is steady: setting the machine's clock loses no
    // worker.
    std::function<absl::Time()> clock = SteadyNow;
    // The time of day, for tickets and times in answers.
    std::function<absl::Time()> wall = absl::Now;
    // The largest number of waiting events of workers, and of clients. An event above it is refused
    // (QUEUE_FULL).
    size_t max_mail = 65536;
    // Called for SetReady and Stopped. They must neither block nor stop the coordinator loop.
    std::function<void(bool)> on_ready = [](bool) {};
    std::function<void()> on_stopped = [] {};
  };

  explicit CoordinatorLoop(Options options);
  // Stops if that has not been done, and waits for plans that are being made.
  ~CoordinatorLoop();
  CoordinatorLoop(const CoordinatorLoop&) = delete;
  CoordinatorLoop& operator=(const CoordinatorLoop&) = delete;

  // A new number for a call or a connection.
  int64_t NewNumber() { return ++last_number_; }
  // The time by the clock of timers and deadlines. Thread-safe.
  absl::Time Now() const { return options_.clock(); }

  // Posts an event. Thread-safe. Handles the event before it returns, or leaves it to the thread
  // that is handling other events. The sink comes with the first event of its call or connection.
  // It is released after its last message. Errors; the event is then lost and the sink not used:
  // - UNAVAILABLE / DRAINING after the coordinator loop has stopped;
  // - RESOURCE_EXHAUSTED / QUEUE_FULL if the mailbox is full. CallGone, WorkerGone, Planned and
  //   Drain are accepted nevertheless: each ends something that was accepted before.
  //
  // Workers' events come first, in order, with the time at which they were posted: beats are never
  // late because clients' events wait.
  absl::Status Post(Event event);
  absl::Status PostCall(int64_t call, std::shared_ptr<CallSink> sink, Event event);
  absl::Status PostLink(int64_t connection, std::shared_ptr<LinkSink> sink, Event event);

  // For sinks, while the coordinator loop calls them: defers work that takes longer than an event
  // may, or that waits for a posting thread. `work` runs soon after, concurrently with other
  // events, on a thread that posts or serves the timers.
  void AfterTurn(std::function<void()> work) EXCLUDES(mutex_);

  // Handles the waiting events, then ends every call and stream with UNAVAILABLE / DRAINING, and
  // the thread. A plan that is being made continues until the destructor. Idempotent.
  void Stop();

  // True if an event was handled, or a timer was checked, within `age`.
  bool FreshWithin(absl::Duration age) const;

 private:
  struct Mail {
    Event event;
    int64_t number = 0;
    std::shared_ptr<CallSink> call = nullptr;
    std::shared_ptr<LinkSink> link = nullptr;
    absl::Time posted = absl::InfinitePast();  // For events of workers.
  };

  SerialExecutor::Options TurnsOptions();
  absl::Status PostMail(Mail mail) EXCLUDES(mutex_);
  // Each of these requires the turn.
  bool HandleNext() EXCLUDES(mutex_);
  std::optional<Mail> TakeMail() EXCLUDES(mutex_);
  void Handle(Mail mail);
  void Perform(Action action);
  // True if the two actions are the last event and the OK end of a call; they are then performed as
  // one.
  bool PerformLast(Action* action, const Action& next);
  void EndAll();
  // Runs deferred work until none is left, unless this thread does so already.
  void RunAfterTurn() EXCLUDES(mutex_);

  Options options_;
  std::atomic<int64_t> last_number_{0};
  std::atomic<int64_t> last_look_ns_{0};

  Mutex mutex_;
  std::deque<Mail> worker_mail_ GUARDED_BY(mutex_);  // Also events that end something.
  std::deque<Mail> client_mail_ GUARDED_BY(mutex_);
  std::deque<std::function<void()>> after_turn_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;

  // Used by the thread that has the turn.
  CoordinatorState state_;
  std::map<int64_t, std::shared_ptr<CallSink>> calls_;
  std::map<int64_t, std::shared_ptr<LinkSink>> links_;
  SerialExecutor turns_;
  PlannerPool planners_;  // Last member: it posts until it is destroyed.
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_SERVICES_COORDINATOR_LOOP_H_

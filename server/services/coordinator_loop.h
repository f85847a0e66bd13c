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

// Where the coordinator's words for one client call go. Called by one thread at a time, which must
// not be kept waiting. Finish, SendLast or Answer is the last call.
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

// The same for one worker's stream. Close is the last call.
class LinkSink {
 public:
  virtual ~LinkSink() = default;
  virtual void Send(Command command) = 0;
  virtual void Close(const absl::Status& status) = 0;
};

// The coordinator's state machine with its mailbox and its timers. One event is handled at a time,
// by whichever thread posts; a thread of its own keeps the time. Knows no gRPC: everything that has
// state is tested without it.
class CoordinatorLoop {
 public:
  struct Options {
    CoordinatorOptions coordinator;
    PlanFunction plan;
    int planner_threads = 1;
    std::function<uint64_t()> random;
    // For timers, leases and deadlines: whoever sets the machine's clock loses no worker.
    std::function<absl::Time()> clock = SteadyNow;
    // The time of day, for what others read: tickets, and times in answers.
    std::function<absl::Time()> wall = absl::Now;
    // Events of workers, and as many of clients, that may wait; one more is refused.
    size_t max_mail = 65536;
    // SetReady and Stopped. Must neither wait nor stop the coordinator loop.
    std::function<void(bool)> on_ready = [](bool) {};
    std::function<void()> on_stopped = [] {};
  };

  explicit CoordinatorLoop(Options options);
  // Stops if that has not been done, and waits for the plans that are being made.
  ~CoordinatorLoop();
  CoordinatorLoop(const CoordinatorLoop&) = delete;
  CoordinatorLoop& operator=(const CoordinatorLoop&) = delete;

  // A number for a call or a connection.
  int64_t NewNumber() { return ++last_number_; }
  // By the clock of timers and deadlines. Thread-safe.
  absl::Time Now() const { return options_.clock(); }

  // Thread-safe. Handles the event before it returns, or leaves it to the thread that is handling
  // others. The sinks come with the first event of their call or connection and
  // are let go after their last word. RESOURCE_EXHAUSTED / QUEUE_FULL when the mailbox is full,
  // UNAVAILABLE / DRAINING when the coordinator loop has stopped: the event is lost and the sink is
  // not used. CallGone, WorkerGone, Planned and Drain are taken by a full mailbox too: each ends
  // something that was taken before.
  //
  // Workers' events come first, in order, and count as of when they were posted: however many
  // events of clients wait here, no beat is late for them.
  absl::Status Post(Event event);
  absl::Status PostCall(int64_t call, std::shared_ptr<CallSink> sink, Event event);
  absl::Status PostLink(int64_t connection, std::shared_ptr<LinkSink> sink, Event event);

  // For sinks, in the coordinator loop's words to them: what takes longer than an event may, or
  // waits for who posts. `work` runs soon after, beside other events, on a thread that posts or
  // keeps the time.
  void AfterTurn(std::function<void()> work) EXCLUDES(mutex_);

  // Handles what is in the mailbox, then ends every call and stream with UNAVAILABLE / DRAINING,
  // and the thread. A plan that is being made goes on until the coordinator loop goes. Idempotent.
  void Stop();

  // Whether an event has been handled, or the time looked at, within `age`.
  bool FreshWithin(absl::Duration age) const;

 private:
  struct Mail {
    Event event;
    int64_t number = 0;
    std::shared_ptr<CallSink> call = nullptr;
    std::shared_ptr<LinkSink> link = nullptr;
    absl::Time posted = absl::InfinitePast();  // Of workers' events.
  };

  SerialExecutor::Options TurnsOptions();
  absl::Status PostMail(Mail mail) EXCLUDES(mutex_);
  // Each with the turn.
  bool HandleNext() EXCLUDES(mutex_);
  std::optional<Mail> TakeMail() EXCLUDES(mutex_);
  void Handle(Mail mail);
  void Perform(Action action);
  // True where the two are a call's last event and its good end, which then are one.
  bool PerformLast(Action* action, const Action& next);
  void EndAll();
  // Until none is left, unless this thread is at it already.
  void RunAfterTurn() EXCLUDES(mutex_);

  Options options_;
  std::atomic<int64_t> last_number_{0};
  std::atomic<int64_t> last_look_ns_{0};

  Mutex mutex_;
  std::deque<Mail> worker_mail_ GUARDED_BY(mutex_);  // And what ends things.
  std::deque<Mail> client_mail_ GUARDED_BY(mutex_);
  std::deque<std::function<void()>> after_turn_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;

  // Of who has the turn.
  CoordinatorState state_;
  std::map<int64_t, std::shared_ptr<CallSink>> calls_;
  std::map<int64_t, std::shared_ptr<LinkSink>> links_;
  SerialExecutor turns_;
  PlannerPool planners_;  // Last: it posts until it goes.
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_SERVICES_COORDINATOR_LOOP_H_

#ifndef ANNULUS_BASE_SERIAL_EXECUTOR_H_
#define ANNULUS_BASE_SERIAL_EXECUTOR_H_

#include <cstdint>
#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace annulus {

// Handles events one at a time, without a thread of its own for them. A thread that posts an event
// handles it itself, together with events that other threads post in the meantime. So no thread has
// to wake up for an event, which takes longer than to handle one. The right to handle events is the
// turn; one thread at a time has it. One more thread, the time keeper, runs ticks, and takes the
// turn from a thread that has handled many events in a row. Thread-safe.
class SerialExecutor {
 public:
  // How much later than due a tick may come: the time keeper does not wake up for every change of
  // the due time.
  static constexpr absl::Duration kNap = absl::Milliseconds(5);

  struct Options {
    // Called with the turn: handles one waiting event; returns false if there is none.
    std::function<bool()> work;
    // Called with the turn when a tick is due.
    std::function<void()> tick;
    // Called with the turn: the time at which the next tick is due. There is also a tick about
    // every `longest_sleep`. Waiting events are handled before a tick.
    std::function<absl::Time()> wake;
    std::function<absl::Time()> now;
    absl::Duration longest_sleep = absl::Seconds(1);
    // The number of events that a thread handles in a row before it passes the turn to the time
    // keeper.
    int most_in_a_row = 64;
    // Called without the turn, by each thread that has just had it. For work that events have left
    // and that must not delay other threads.
    std::function<void()> after = [] {};
  };

  explicit SerialExecutor(Options options) : options_(std::move(options)) {}
  ~SerialExecutor() { Stop(); }
  SerialExecutor(const SerialExecutor&) = delete;
  SerialExecutor& operator=(const SerialExecutor&) = delete;

  // Starts handling events; none is handled before. Call it once.
  void Start() EXCLUDES(mutex_);
  // Call it after posting an event. The event is handled here before Take returns, or by the thread
  // that has the turn.
  void Take() EXCLUDES(mutex_);
  // Take for a caller that may hold a lock which handling takes: never handles the event here. The
  // time keeper does, after at most kNap, unless a Take() comes before.
  void Ask() EXCLUDES(mutex_);
  // Waits until no thread has the turn. No event is handled after Stop has returned. Idempotent.
  // Must not be called with the turn.
  void Stop() EXCLUDES(mutex_);

 private:
  void Work() EXCLUDES(mutex_);
  // Gives the turn back and returns true, unless there was a Take() or Ask() since `asked`.
  bool EndTurn(uint64_t asked) EXCLUDES(mutex_);
  void KeepTime() EXCLUDES(mutex_);
  // Sleeps until this thread gets the turn, at `longest` at the latest, and returns true. Returns
  // false after Stop().
  bool AwaitTurn(absl::Time longest) EXCLUDES(mutex_);

  const Options options_;
  Mutex mutex_;
  CondVar changed_;
  // A thread has the turn. True before Start(), so that no thread gets it.
  bool busy_ GUARDED_BY(mutex_) = true;
  bool handed_over_ GUARDED_BY(mutex_) = false;  // The turn is passed to the time keeper.
  bool aside_ GUARDED_BY(mutex_) = false;        // An Ask() waits and no thread has the turn.
  bool active_ GUARDED_BY(mutex_) = false;  // There was a turn since the time keeper last slept.
  bool stopping_ GUARDED_BY(mutex_) = false;
  uint64_t asked_ GUARDED_BY(mutex_) = 0;
  absl::Time wake_ GUARDED_BY(mutex_) = absl::InfinitePast();
  absl::Time sleeps_until_ GUARDED_BY(mutex_) = absl::InfinitePast();
  std::thread thread_;
};

}  // namespace annulus

#endif  // ANNULUS_BASE_SERIAL_EXECUTOR_H_

#ifndef ANNULUS_BASE_SERIAL_EXECUTOR_H_
#define ANNULUS_BASE_SERIAL_EXECUTOR_H_

#include <cstdint>
#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace annulus {

// One at a time without a thread for it: whoever brings an event handles it, on its own thread, and
// what others bring meanwhile. No thread has to wake for an event, which takes longer than to
// handle one. A thread beside them keeps the time, and takes over from one that has worked for
// others long enough. Thread-safe.
class SerialExecutor {
 public:
  // How much later than asked a tick may come: the thread does not wake for every change of the
  // next one.
  static constexpr absl::Duration kNap = absl::Milliseconds(5);

  struct Options {
    // With the turn: handles one event that waits; false when none does.
    std::function<bool()> work;
    // With the turn: the time has come.
    std::function<void()> tick;
    // With the turn: when the next tick is due at the latest. One comes about every `longest_sleep`
    // too. Events that wait are handled before it.
    std::function<absl::Time()> wake;
    std::function<absl::Time()> now;
    absl::Duration longest_sleep = absl::Seconds(1);
    // Events that a thread handles in a row before it hands the turn over.
    int most_in_a_row = 64;
    // Without the turn, by each thread that has just had it: for what events left to be done that
    // must hold up no others.
    std::function<void()> after = [] {};
  };

  explicit SerialExecutor(Options options) : options_(std::move(options)) {}
  ~SerialExecutor() { Stop(); }
  SerialExecutor(const SerialExecutor&) = delete;
  SerialExecutor& operator=(const SerialExecutor&) = delete;

  // Nothing is handled before. Once.
  void Start() EXCLUDES(mutex_);
  // An event may wait: it is handled here before this returns, or by the thread that has the turn.
  void Take() EXCLUDES(mutex_);
  // The same, but never handled here: for who may hold a lock that handling takes. The time keeper
  // does it, after its nap where it has one, unless somebody's Take() comes before.
  void Ask() EXCLUDES(mutex_);
  // Waits for the turn's end. Nothing is handled once it has returned. Idempotent; not with the
  // turn.
  void Stop() EXCLUDES(mutex_);

 private:
  void Work() EXCLUDES(mutex_);
  // Gives the turn back, unless there was a Take() since `asked`.
  bool EndTurn(uint64_t asked) EXCLUDES(mutex_);
  void KeepTime() EXCLUDES(mutex_);
  // Sleeps until the turn is this thread's, at `longest` at the latest; false at the end.
  bool AwaitTurn(absl::Time longest) EXCLUDES(mutex_);

  const Options options_;
  Mutex mutex_;
  CondVar changed_;
  bool busy_ GUARDED_BY(mutex_) = true;  // Somebody has the turn; before Start(), nobody may.
  bool handed_over_ GUARDED_BY(mutex_) = false;  // To the time keeper.
  bool aside_ GUARDED_BY(mutex_) = false;        // An Ask() waits, and nobody has the turn.
  bool active_ GUARDED_BY(mutex_) = false;       // There was a turn since the time keeper looked.
  bool stopping_ GUARDED_BY(mutex_) = false;
  uint64_t asked_ GUARDED_BY(mutex_) = 0;
  absl::Time wake_ GUARDED_BY(mutex_) = absl::InfinitePast();
  absl::Time sleeps_until_ GUARDED_BY(mutex_) = absl::InfinitePast();
  std::thread thread_;
};

}  // namespace annulus

#endif  // ANNULUS_BASE_SERIAL_EXECUTOR_H_

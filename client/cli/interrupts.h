#ifndef ANNULUS_CLIENT_CLI_INTERRUPTS_H_
#define ANNULUS_CLIENT_CLI_INTERRUPTS_H_

#include <csignal>
#include <functional>
#include <string>
#include <thread>

#include "absl/strings/string_view.h"
#include "base/mutex.h"

namespace annulus {

// True if the process ignores a signal, as with SIGHUP after `nohup`.
bool IsIgnored(int number);

// Signal handling of a command.
// - SIGINT (Ctrl-C), SIGTERM and SIGHUP call the SetCancel() function. Without one, or at the
//   second signal, they end the program at once with kExitInterrupted. Signals that were ignored
//   before stay ignored.
// - SIGBUS, because an input file was truncated while it was read, ends the program with
//   kExitRefused.
// - SIGXFSZ (a file beyond the size limit) is ignored: the write fails instead.
//
// At most one object in a process. Create it on the main thread before any other thread starts.
// Thread-safe.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Sets a file that is removed if the program ends at once.
  void RemoveAtEnd(std::string path) EXCLUDES(mutex_);
  // The first signal from now on calls `cancel`, on a thread of its own. Null: no function.
  // `cancel` must not wait for this object.
  void SetCancel(std::function<void()> cancel) EXCLUDES(mutex_);

 private:
  void Watch() EXCLUDES(mutex_);
  void Interrupted() EXCLUDES(mutex_);
  [[noreturn]] void EndAtOnce(absl::string_view why, int code) REQUIRES(mutex_);
  bool IsOver() EXCLUDES(mutex_);

  Mutex mutex_;
  std::string file_ GUARDED_BY(mutex_);
  std::function<void()> cancel_ GUARDED_BY(mutex_);
  bool over_ GUARDED_BY(mutex_) = false;
  const sigset_t signals_;  // The signals that the thread receives.
  std::thread thread_;
  // The previous actions of SIGBUS and SIGXFSZ.
  struct sigaction before_ = {}, file_size_before_ = {};
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_INTERRUPTS_H_

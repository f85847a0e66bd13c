#ifndef ANNULUS_CLIENT_CLI_INTERRUPTS_H_
#define ANNULUS_CLIENT_CLI_INTERRUPTS_H_

#include <csignal>
#include <functional>
#include <string>
#include <thread>

#include "absl/strings/string_view.h"
#include "base/mutex.h"

namespace annulus {

// Whether the process ignores a signal, as one that `nohup` has started does SIGHUP.
bool IsIgnored(int number);

// What Ctrl-C (SIGINT), SIGTERM and SIGHUP do to a command: they cancel what it waits for; where
// nothing is waited for, or it was asked before, they end the program at once with
// kExitInterrupted. Those that were ignored before stay so. And what an input file does that
// becomes shorter while it is read, of which SIGBUS tells: it ends the program with kExitRefused. A
// file that would grow past what is allowed (SIGXFSZ) is an error of the write, not the end of the
// program. One in a process, made before all threads but the main one. Thread-safe.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // A file that is removed where the program ends at once.
  void RemoveAtEnd(std::string path) EXCLUDES(mutex_);
  // The first signal from now on calls it, on a thread of its own; nullptr: none does. It must not
  // wait for this object.
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
  const sigset_t signals_;  // What the thread takes.
  std::thread thread_;
  struct sigaction before_ = {}, file_size_before_ = {};  // What SIGBUS and SIGXFSZ did.
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_INTERRUPTS_H_

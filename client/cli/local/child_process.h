#ifndef ANNULUS_CLIENT_CLI_LOCAL_CHILD_PROCESS_H_
#define ANNULUS_CLIENT_CLI_LOCAL_CHILD_PROCESS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace annulus {

// A process that this one started, in a process group of its own: signals of a terminal do not
// reach it. It is killed when the thread that started it ends, and by the destructor. Movable; one
// thread.
class ChildProcess {
 public:
  // Runs arguments[0] with an empty signal mask. Its standard output goes to a pipe for ReadLine,
  // or to our standard error.
  static absl::StatusOr<ChildProcess> Start(const std::vector<std::string>& arguments,
                                            bool pipe_output);
  ChildProcess() = default;
  ChildProcess(ChildProcess&& other) noexcept { *this = std::move(other); }
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  // The next line of its output, without the end of line. UNAVAILABLE at its end,
  // DEADLINE_EXCEEDED. The deadline is by base/steady_time.h.
  absl::StatusOr<std::string> ReadLine(absl::Time deadline);

  // Whether it still runs; reaps it when not.
  bool Running();
  void Signal(int number);
  // Nothing while it runs, and where a signal ended it.
  std::optional<int> exit_code() const;
  // "ended with 1", "was ended by signal 9".
  std::string HowItEnded() const;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
  bool running_ = false;
  int status_ = 0;
  int output_ = -1;
};

// The program `name`: beside this one, beside how this one was called, else from PATH.
std::string FindProgram(const std::string& name);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_LOCAL_CHILD_PROCESS_H_

#ifndef ANNULUS_CLIENT_CLI_LOCAL_CHILD_PROCESS_H_
#define ANNULUS_CLIENT_CLI_LOCAL_CHILD_PROCESS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace annulus {

// A child process in a process group of its own, so that a terminal's signals do not reach it. It
// is killed when the thread that started it ends, and by the destructor. Movable; not thread-safe.
class ChildProcess {
 public:
  // Runs arguments[0] with an empty signal mask. The child's standard output goes to a pipe for
  // ReadLine(), or to this process's standard error.
  static absl::StatusOr<ChildProcess> Start(const std::vector<std::string>& arguments,
                                            bool pipe_output);
  ChildProcess() = default;
  ChildProcess(ChildProcess&& other) noexcept { *this = std::move(other); }
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  // Waits for the next line of output, without the line end. UNAVAILABLE at the end of the output,
  // DEADLINE_EXCEEDED at `deadline`, which is on the clock of base/steady_time.h.
  absl::StatusOr<std::string> ReadLine(absl::Time deadline);

  // True if the child still runs. Reaps it if not.
  bool Running();
  void Signal(int number);
  // Absent while the child runs, and if a signal ended it.
  std::optional<int> exit_code() const;
  // For example "ended with 1", "was ended by signal 9".
  std::string HowItEnded() const;
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
  bool running_ = false;
  int status_ = 0;
  int output_ = -1;
};

// The path of program `name`: in the folder of this executable, in the folder of argv[0], else
// looked up in PATH.
std::string FindProgram(const std::string& name);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_LOCAL_CHILD_PROCESS_H_

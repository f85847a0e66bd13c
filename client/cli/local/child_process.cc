#include "client/cli/local/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/steady_time.h"

namespace annulus {
namespace {

// Runs in the child between fork and exec: only async-signal-safe calls.
[[noreturn]] void Become(char* const* arguments, int output, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent ended before prctl().
  if (getppid() != parent) _exit(127);
  // A Ctrl-C in a terminal goes to a whole process group. The parent decides what to pass on.
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(output, STDOUT_FILENO);
  execvp(arguments[0], arguments);
  _exit(127);
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Start(const std::vector<std::string>& arguments,
                                                 bool pipe_output) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  int ends[2] = {-1, STDERR_FILENO};
  if (pipe_output && pipe2(ends, O_CLOEXEC) != 0)
    return absl::ErrnoToStatus(errno, "cannot create a pipe");
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Become(argv.data(), ends[1], parent);
  const int error = errno;
  if (pipe_output) close(ends[1]);
  if (pid < 0) {
    if (pipe_output) close(ends[0]);
    return absl::ErrnoToStatus(error, absl::StrCat("cannot start ", arguments[0]));
  }
  ChildProcess child;
  child.pid_ = pid;
  child.running_ = true;
  child.output_ = ends[0];
  return child;
}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(running_, other.running_);
  std::swap(status_, other.status_);
  std::swap(output_, other.output_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (Running()) {
    kill(pid_, SIGKILL);
    waitpid(pid_, &status_, 0);
  }
  if (output_ >= 0) close(output_);
}

absl::StatusOr<std::string> ChildProcess::ReadLine(absl::Time deadline) {
  std::string line;
  for (;;) {
    const int64_t left = std::max<int64_t>(0, absl::ToInt64Milliseconds(deadline - SteadyNow()));
    pollfd wait = {output_, POLLIN, 0};
    const int ready = poll(&wait, 1, static_cast<int>(std::min<int64_t>(left, INT_MAX)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return absl::DeadlineExceededError("it has printed nothing");
    char byte = 0;
    const ssize_t got = read(output_, &byte, 1);
    if (got <= 0) return absl::UnavailableError("it has ended");
    if (byte == '\n') return line;
    line.push_back(byte);
  }
}

bool ChildProcess::Running() {
  if (running_ && waitpid(pid_, &status_, WNOHANG) == pid_) running_ = false;
  return running_;
}

void ChildProcess::Signal(int number) {
  if (Running()) kill(pid_, number);
}

std::optional<int> ChildProcess::exit_code() const {
  if (pid_ == 0 || running_ || !WIFEXITED(status_)) return std::nullopt;
  return WEXITSTATUS(status_);
}

std::string ChildProcess::HowItEnded() const {
  if (WIFSIGNALED(status_)) return absl::StrCat("was ended by signal ", WTERMSIG(status_));
  return absl::StrCat("ended with exit code ", WEXITSTATUS(status_));
}

std::string FindProgram(const std::string& name) {
  char self[PATH_MAX] = {};
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
  for (const std::string& folder :
       {length > 0 ? FolderOf(std::string(self, length)) : "", FolderOf(program_invocation_name)}) {
    const std::string path = absl::StrCat(folder, "/", name);
    if (!folder.empty() && access(path.c_str(), X_OK) == 0) return path;
  }
  return name;
}

}  // namespace annulus

#include "base/run_child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/steady_time.h"

extern char** environ;

namespace annulus {
namespace {

constexpr size_t kMostOutput = 4096;
// A child may end without its output being closed, since others may hold it. So Await checks both
// in turn.
constexpr int kAskMilliseconds = 10;
constexpr absl::Duration kKillTime = absl::Seconds(2);

// Returns 0, or errno.
int Spawn(const std::vector<std::string>& command, int output, pid_t* pid) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const int error = posix_spawn(pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

// Reads the available output. Returns false at its end.
bool Read(int from, std::string* output) {
  char bytes[512];
  const ssize_t count = read(from, bytes, sizeof(bytes));
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  if (output->size() < kMostOutput)
    output->append(bytes, std::min(static_cast<size_t>(count), kMostOutput - output->size()));
  return count > 0;
}

// If a process ignores SIGCHLD, which is inherited, the kernel does not keep the exit status of its
// children.
void KeepEnds() {
  struct sigaction action = {};
  if (sigaction(SIGCHLD, nullptr, &action) != 0) return;
  if (action.sa_handler == SIG_IGN || (action.sa_flags & SA_NOCLDWAIT) != 0)
    signal(SIGCHLD, SIG_DFL);
}

// Returns true if the child has ended, and sets how.
bool Ended(pid_t pid, ChildEnd* end) {
  int status = 0;
  const pid_t ended = waitpid(pid, &status, WNOHANG);
  if (ended < 0 && errno == ECHILD) {
    end->code = ECHILD;
    return true;
  }
  if (ended != pid) return false;
  const bool by_signal = WIFSIGNALED(status);
  end->kind = by_signal ? ChildEnd::Kind::kSignal : ChildEnd::Kind::kExited;
  end->code = by_signal ? WTERMSIG(status) : WEXITSTATUS(status);
  return true;
}

// Returns true once the child has ended, false at the deadline.
bool Await(pid_t pid, int from, absl::Time deadline, ChildEnd* end) {
  pollfd output{from, POLLIN, 0};
  for (bool ended = false;;) {
    if (poll(&output, 1, ended ? 0 : kAskMilliseconds) > 0) {
      if (!Read(from, &end->output)) output.fd = -1;
    } else if (ended) {
      return true;
    }
    ended = ended || Ended(pid, end);
    if (!ended && SteadyNow() >= deadline) return false;
  }
}

}  // namespace

ChildEnd RunChild(const std::vector<std::string>& command, absl::Duration limit) {
  ChildEnd end;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    end.code = errno;
    return end;
  }
  (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
  KeepEnds();
  pid_t pid = -1;
  end.code = Spawn(command, ends[1], &pid);
  close(ends[1]);
  if (end.code == 0 && !Await(pid, ends[0], SteadyNow() + limit, &end)) {
    kill(pid, SIGKILL);
    (void)Await(pid, ends[0], SteadyNow() + kKillTime, &end);
    end.kind = ChildEnd::Kind::kLate;
    end.code = 0;
  }
  close(ends[0]);
  return end;
}

}  // namespace annulus

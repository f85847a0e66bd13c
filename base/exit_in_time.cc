#include "base/exit_in_time.h"

#include <signal.h>
#include <unistd.h>

namespace annulus {
namespace {

volatile sig_atomic_t exit_code = 0;

void Exit(int) { _exit(exit_code); }

}  // namespace

void ExitInTime(int code, unsigned seconds) {
  exit_code = code;
  struct sigaction action = {};
  action.sa_handler = Exit;
  sigaction(SIGALRM, &action, nullptr);
  sigset_t alarms;
  sigemptyset(&alarms);
  sigaddset(&alarms, SIGALRM);
  pthread_sigmask(SIG_UNBLOCK, &alarms, nullptr);
  alarm(seconds);
}

}  // namespace annulus

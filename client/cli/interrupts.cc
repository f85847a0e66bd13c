#include "client/cli/interrupts.h"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/report.h"

namespace annulus {
namespace {

// Signals to the watching thread: from the destructor, and from a thread that cannot go on reading.
constexpr int kOver = SIGUSR1, kInputCut = SIGUSR2;

pthread_t watcher;  // Set before the handler is installed.
volatile std::sig_atomic_t input_is_cut = 0;

// Runs on the thread that read beyond the end of the file. It cannot continue and may hold locks,
// so the watcher ends the program. Other bus errors are not handled here.
void OnBusError(int number, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR || pthread_equal(pthread_self(), watcher)) {
    std::signal(number, SIG_DFL);
    raise(number);
    return;
  }
  input_is_cut = 1;
  pthread_kill(watcher, kInputCut);
  for (;;) pause();
}

// Ignored signals are left out: sigwait() would take a blocked one even if it is ignored.
sigset_t Signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {kOver, kInputCut}) sigaddset(&signals, number);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    if (!IsIgnored(number)) sigaddset(&signals, number);
  }
  return signals;
}

}  // namespace

bool IsIgnored(int number) {
  struct sigaction action = {};
  return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// Threads started later inherit the mask, so only this thread receives the signals.
Interrupts::Interrupts() : signals_(Signals()) {
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  thread_ = std::thread([this] { Watch(); });
  watcher = thread_.native_handle();
  struct sigaction action = {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, &before_);
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGXFSZ, &ignore, &file_size_before_);
}

Interrupts::~Interrupts() {
  sigaction(SIGBUS, &before_, nullptr);
  sigaction(SIGXFSZ, &file_size_before_, nullptr);
  {
    MutexLock lock(&mutex_);
    over_ = true;
  }
  pthread_kill(thread_.native_handle(), kOver);
  thread_.join();
  pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
}

void Interrupts::RemoveAtEnd(std::string path) {
  MutexLock lock(&mutex_);
  file_ = std::move(path);
}

void Interrupts::SetCancel(std::function<void()> cancel) {
  MutexLock lock(&mutex_);
  cancel_ = std::move(cancel);
}

void Interrupts::Watch() {
  for (int number = 0; !IsOver();) {
    if (sigwait(&signals_, &number) != 0 || number == kOver) continue;
    if (number != kInputCut) {
      Interrupted();
      continue;
    }
    if (input_is_cut == 0) continue;
    MutexLock lock(&mutex_);
    EndAtOnce("an input file became shorter while it was read", kExitRefused);
  }
}

bool Interrupts::IsOver() {
  MutexLock lock(&mutex_);
  return over_;
}

void Interrupts::Interrupted() {
  std::function<void()> cancel;
  {
    MutexLock lock(&mutex_);
    cancel = std::exchange(cancel_, nullptr);
    if (cancel == nullptr) EndAtOnce("interrupted", kExitInterrupted);
  }
  cancel();
}

// Does not use std::cerr: a stopped thread may hold its lock.
void Interrupts::EndAtOnce(absl::string_view why, int code) {
  if (!file_.empty()) unlink(file_.c_str());
  const std::string line = absl::StrCat("annulus: ", why, "\n");
  (void)!write(STDERR_FILENO, line.data(), line.size());
  std::_Exit(code);
}

}  // namespace annulus

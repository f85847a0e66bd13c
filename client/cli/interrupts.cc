#include "client/cli/interrupts.h"

#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "client/cli/report.h"

namespace annulus {
namespace {

// Words to the thread: of the destructor, and of a thread that cannot go on reading.
constexpr int kOver = SIGUSR1, kInputCut = SIGUSR2;
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, kOver, kInputCut};

pthread_t watcher;  // Set before the handler is.

// On the thread that has read what is not there any more: it has nothing to go on with, and may
// hold anything, so another one ends the program.
void OnBusError(int) {
  pthread_kill(watcher, kInputCut);
  for (;;) pause();
}

sigset_t Signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : kSignals) sigaddset(&signals, number);
  return signals;
}

}  // namespace

// Threads that are started later have them blocked, too: this one alone takes them.
Interrupts::Interrupts() {
  const sigset_t signals = Signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  thread_ = std::thread([this] { Watch(); });
  watcher = thread_.native_handle();
  std::signal(SIGBUS, OnBusError);
}

Interrupts::~Interrupts() {
  std::signal(SIGBUS, SIG_DFL);
  {
    MutexLock lock(&mutex_);
    over_ = true;
  }
  pthread_kill(thread_.native_handle(), kOver);
  thread_.join();
  const sigset_t signals = Signals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
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
  const sigset_t signals = Signals();
  for (int number = 0; !IsOver();) {
    if (sigwait(&signals, &number) != 0 || number == kOver) continue;
    if (number != kInputCut) {
      Interrupted();
      continue;
    }
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

void Interrupts::EndAtOnce(const char* why, int code) {
  if (!file_.empty()) std::remove(file_.c_str());
  std::cerr << "annulus: " << why << "\n";
  std::_Exit(code);
}

}  // namespace annulus

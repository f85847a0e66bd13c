#include "client/cli/interrupts.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "client/cli/report.h"

namespace annulus {
namespace {

// The last one is the destructor's word to the thread.
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

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
}

Interrupts::~Interrupts() {
  {
    MutexLock lock(&mutex_);
    over_ = true;
  }
  pthread_kill(thread_.native_handle(), SIGUSR1);
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
    if (sigwait(&signals, &number) == 0 && number != SIGUSR1) Interrupted();
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
    if (cancel == nullptr) {
      if (!file_.empty()) std::remove(file_.c_str());
      std::cerr << "annulus: interrupted\n";
      std::_Exit(kExitInterrupted);
    }
  }
  cancel();
}

}  // namespace annulus

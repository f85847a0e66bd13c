#include "worker/device/load_gate.h"

#include <chrono>

namespace annulus {

void LoadGate::BeginMessages() {
  MutexLock lock(&mutex_);
  while (loads_ > 0) changed_.Wait(&mutex_);
  ++messages_;
}

void LoadGate::EndMessages() {
  MutexLock lock(&mutex_);
  --messages_;
  changed_.SignalAll();
}

bool LoadGate::BeginLoad(absl::Duration wait) {
  const auto end = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(wait);
  MutexLock lock(&mutex_);
  while (messages_ > 0) {
    if (!changed_.WaitUntil(&mutex_, end) && messages_ > 0) return false;
  }
  ++loads_;
  return true;
}

void LoadGate::EndLoad() {
  MutexLock lock(&mutex_);
  --loads_;
  changed_.SignalAll();
}

}  // namespace annulus

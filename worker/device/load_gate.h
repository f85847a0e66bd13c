#ifndef ANNULUS_WORKER_DEVICE_LOAD_GATE_H_
#define ANNULUS_WORKER_DEVICE_LOAD_GATE_H_

#include "absl/time/time.h"
#include "base/mutex.h"

namespace annulus {

// Keeps what loads code onto a GPU apart from what communicates on it. A load may wait for all of
// the GPU's work, messages among it, and these wait for other GPUs, whose threads may be loading
// too. Thread-safe.
class LoadGate {
 public:
  // Messages are under way between the two; of several communicators at once, too. Waits for loads,
  // which wait for no message.
  void BeginMessages() EXCLUDES(mutex_);
  void EndMessages() EXCLUDES(mutex_);

  // True where no message is under way, now or within `wait`: none begins until EndLoad.
  bool BeginLoad(absl::Duration wait) EXCLUDES(mutex_);
  void EndLoad() EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  CondVar changed_;
  int messages_ GUARDED_BY(mutex_) = 0;
  int loads_ GUARDED_BY(mutex_) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DEVICE_LOAD_GATE_H_

#ifndef ANNULUS_WORKER_DEVICE_LOAD_GATE_H_
#define ANNULUS_WORKER_DEVICE_LOAD_GATE_H_

#include "absl/time/time.h"
#include "base/mutex.h"

namespace annulus {

// Separates loading code onto a GPU from communication on it. A load may wait for all work of the
// GPU, including messages. These wait for other GPUs, whose threads may be loading too.
// Thread-safe.
class LoadGate {
 public:
  // Messages are in progress between the two calls, possibly of several communicators.
  // BeginMessages waits for loads, which never wait for messages.
  void BeginMessages() EXCLUDES(mutex_);
  void EndMessages() EXCLUDES(mutex_);

  // Waits at most `wait` until no message is in progress. True if so; then none begins until
  // EndLoad.
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

#ifndef ANNULUS_CLIENT_CLI_PROGRESS_BAR_H_
#define ANNULUS_CLIENT_CLI_PROGRESS_BAR_H_

#include <string>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "client/session/job_session.h"

namespace annulus {

// One line on standard error that is written over, at most ten times a second. Thread-safe.
class ProgressBar {
 public:
  // Without `on` nothing is ever written.
  explicit ProgressBar(bool on) : on_(on) {}
  void Show(const JobProgress& progress) EXCLUDES(mutex_);
  // Takes the line away.
  void Clear() EXCLUDES(mutex_);

 private:
  const bool on_;
  Mutex mutex_;
  absl::Time shown_ GUARDED_BY(mutex_) = absl::InfinitePast();
  bool ended_ GUARDED_BY(mutex_) = false;
};

// Whether a bar can be drawn on a file descriptor: on a terminal that can go back in a line (TERM).
bool IsDrawnOn(int descriptor);

// "uploading [#########           ]  45 %".
std::string ProgressText(const JobProgress& progress);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_PROGRESS_BAR_H_

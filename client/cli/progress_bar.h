#ifndef ANNULUS_CLIENT_CLI_PROGRESS_BAR_H_
#define ANNULUS_CLIENT_CLI_PROGRESS_BAR_H_

#include <string>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "client/session/job_session.h"

namespace annulus {

// A progress line on standard error, redrawn at most ten times a second. Thread-safe.
class ProgressBar {
 public:
  // False: nothing is written.
  explicit ProgressBar(bool on) : on_(on) {}
  void Show(const JobProgress& progress) EXCLUDES(mutex_);
  // Erases the line.
  void Clear() EXCLUDES(mutex_);

 private:
  const bool on_;
  Mutex mutex_;
  absl::Time shown_ GUARDED_BY(mutex_) = absl::InfinitePast();
  bool ended_ GUARDED_BY(mutex_) = false;
};

// True if a bar can be drawn on a file descriptor: a terminal that can return to the start of a
// line (TERM).
bool IsDrawnOn(int descriptor);

// For example "uploading [#########           ]  45 %".
std::string ProgressText(const JobProgress& progress);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_PROGRESS_BAR_H_

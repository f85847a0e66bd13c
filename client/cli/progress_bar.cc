#include "client/cli/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/steady_time.h"

namespace annulus {
namespace {

constexpr int kWidth = 40;
constexpr absl::Duration kInterval = absl::Milliseconds(100);

struct Phase {
  const char* name;
  double done;
};

double Part(int64_t done, int64_t whole) {
  return whole > 0 ? std::min(1.0, static_cast<double>(done) / static_cast<double>(whole)) : 0;
}

Phase PhaseOf(const JobProgress& progress) {
  switch (progress.state) {
    case v1::Job::STATE_UPLOADING:
      return {"uploading", Part(progress.bytes_sent, progress.bytes_to_send)};
    case v1::Job::STATE_READY:
    case v1::Job::STATE_RUNNING:
      return {"computing", Part(progress.segments_done, progress.segments)};
    case v1::Job::STATE_DRAINING:
    case v1::Job::STATE_SUCCEEDED:
      return {"fetching", Part(progress.bytes_received, progress.bytes_to_receive)};
    default:
      return {"waiting", 0};
  }
}

}  // namespace

std::string ProgressText(const JobProgress& progress) {
  const Phase phase = PhaseOf(progress);
  const int filled = static_cast<int>(std::floor(phase.done * kWidth));
  return absl::StrFormat("%-9s [%s%s] %3.0f %%", phase.name, std::string(filled, '#'),
                         std::string(kWidth - filled, ' '), std::floor(phase.done * 100));
}

void ProgressBar::Show(const JobProgress& progress) {
  if (!on_) return;
  MutexLock lock(&mutex_);
  const absl::Time now = SteadyNow();
  if (ended_ || now < shown_ + kInterval) return;
  shown_ = now;
  std::cerr << absl::StrCat("\r", ProgressText(progress));
}

void ProgressBar::Clear() {
  if (!on_) return;
  MutexLock lock(&mutex_);
  ended_ = true;
  std::cerr << absl::StrCat("\r", std::string(kWidth + 24, ' '), "\r");
}

bool IsDrawnOn(int descriptor) {
  const char* const term = std::getenv("TERM");
  const bool goes_back = term != nullptr && *term != '\0' && absl::string_view(term) != "dumb";
  return goes_back && isatty(descriptor) == 1;
}

}  // namespace annulus

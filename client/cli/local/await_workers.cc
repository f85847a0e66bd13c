#include "client/cli/local/await_workers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace annulus {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(10);
constexpr absl::Duration kPollInterval = absl::Milliseconds(100);

bool MayComeYet(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ||
         status.code() == absl::StatusCode::kDeadlineExceeded;
}

}  // namespace

int ReadyWorkers(const v1::ServerInfo& info) {
  int ready = 0;
  for (const v1::WorkerInfo& worker : info.workers()) {
    ready += worker.state() == v1::WorkerInfo::STATE_READY ? 1 : 0;
  }
  return ready;
}

absl::StatusOr<v1::ServerInfo> AwaitWorkers(int64_t wanted, absl::Duration timeout,
                                            const AwaitContext& context) {
  if (wanted == 0) return context.ask(std::min(kCallTimeout, timeout));
  const absl::Time deadline = context.now() + timeout;
  absl::StatusOr<v1::ServerInfo> info =
      absl::UnavailableError("the time limit passed before the first request");
  for (absl::Duration left = timeout; left > absl::ZeroDuration();
       left = deadline - context.now()) {
    absl::StatusOr<v1::ServerInfo> asked = context.ask(std::min(kCallTimeout, left));
    if (asked.ok() ? ReadyWorkers(*asked) >= wanted : !MayComeYet(asked.status())) return asked;
    // An answer is better than an error: keep the last one.
    if (asked.ok() || !info.ok()) info = std::move(asked);
    context.sleep(kPollInterval);
  }
  if (!info.ok()) return info;
  return MakeError(absl::StatusCode::kDeadlineExceeded,
                   absl::StrCat(ReadyWorkers(*info), " of ", wanted, " workers are ready"),
                   {"NO_WORKERS", {}, {}, {}});
}

}  // namespace annulus

#include "client/cli/verify/all_threads.h"

#include <algorithm>
#include <atomic>

#include "base/cpu_list.h"
#include "base/work_queue.h"

namespace annulus {

void ForEachOnAllThreads(int64_t count, absl::FunctionRef<void(int64_t)> work) {
  std::atomic<int64_t> next{0};
  const auto take = [&] {
    for (int64_t n = next++; n < count; n = next++) work(n);
  };
  // This thread works too.
  const auto others = static_cast<int>(std::min<int64_t>(AllowedCpuCount(), count) - 1);
  if (others <= 0) return take();
  WorkQueue threads(others, others);
  for (int i = 0; i < others; ++i) threads.PostAlways(take);
  take();
}

}  // namespace annulus

#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_LAUNCH_COST_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_LAUNCH_COST_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/cuda/launch/visible_rows.h"

namespace annulus::cuda {

// How long launches take, by estimate: pure functions, no device. In multiply-adds of tensor cores,
// of which a GPU does 16 while its threads do one of anything else (A100 and H100: 1024 and 2048 of
// a multiprocessor's cycle beside 64 and 128).

// Of what is queued at once: a fraction of a second of a large GPU. So whoever waits for a device
// sees it come on, and a call that is told to stop does: a few launches at most are queued ahead.
inline constexpr double kMaxLaunchWork = 2.5e13;

// What a pair of a query and a key costs: its products as they are, by tensor cores or by FMA, and
// what is done to its score and its weight in each pass over it.
class PairCost {
 public:
  explicit PairCost(const KernelJob& job);
  // In all launches that a task's tables serve.
  double Of(const KernelTask& bound) const;

 private:
  double attention_, of_queries_, of_keys_;
};

// So many keys of a task, at most, are in tiles of which shard-local query rows `rows` see some.
int64_t VisibleKeys(const CallView& call, int32_t task, Interval rows);

struct LongKeysRule {
  double max_work = kMaxLaunchWork;
  // Launches, one after the other, that share a task's heads and rows.
  int64_t turns = 1;
};

// A block of threads goes through all keys that its rows see of a task. So that a launch with
// blocks enough to keep a large GPU busy is no more than max_work, tasks with more keys are cut
// between tiles of keys: an accumulator sees the same in the same order. Empty where none is cut.
std::vector<KernelTask> CutLongKeys(const CallView& call, const LongKeysRule& rule);

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_LAUNCH_COST_H_

#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_LAUNCH_COST_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_LAUNCH_COST_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/cuda/launch/visible_rows.h"

namespace annulus::cuda {

// Estimates of the duration of launches: pure functions, no device. The unit is a multiply-add of
// tensor cores. A GPU does 16 of these in the time of one other thread instruction (A100 and H100:
// 1024 and 2048 per multiprocessor and cycle, against 64 and 128).

// The limit of work that is queued at once: a fraction of a second of a large GPU. So a waiting
// thread sees progress, and a stopped call ends soon: at most a few launches are queued ahead.
inline constexpr double kMaxLaunchWork = 2.5e13;

// The cost of a (query, key) pair: its products, by tensor cores or by FMA, and the work on its
// score and weight in each pass.
class PairCost {
 public:
  explicit PairCost(const KernelJob& job);
  // The cost in all launches that a task's tables serve.
  double Of(const KernelTask& bound) const;

 private:
  double attention_, of_queries_, of_keys_;
};

// An upper bound for the keys of a task in tiles of which shard-local query rows `rows` see some.
int64_t VisibleKeys(const CallView& call, int32_t task, Interval rows);

struct LongKeysRule {
  double max_work = kMaxLaunchWork;
  // Launches, one after the other, that share a task's heads and rows.
  int64_t turns = 1;
};

// A thread block goes through all keys of a task that its rows see. A launch with enough blocks to
// fill a large GPU must not exceed max_work. So tasks with more keys are cut between tiles of keys;
// an accumulator sees the same keys in the same order. Returns an empty list if no task is cut.
std::vector<KernelTask> CutLongKeys(const CallView& call, const LongKeysRule& rule);

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_LAUNCH_COST_H_

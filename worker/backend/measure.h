#ifndef ANNULUS_WORKER_BACKEND_MEASURE_H_
#define ANNULUS_WORKER_BACKEND_MEASURE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "attention/planning/kernel_rates.h"
#include "base/steady_time.h"
#include "worker/executor/program.h"
#include "worker/executor/staging_copies.h"
#include "worker/kernel/cpu/huge_memory.h"
#include "worker/lane/engine.h"

namespace annulus {

// Measures rates for attention/planning/cost_model.h with the worker's own back-end. Each
// measurement takes about `budget`.

// Device and kernel shared by all jobs of a measurement, since making a kernel may take longer than
// measuring it.
struct Machine {
  static absl::StatusOr<Machine> Create(const Engine& engine);

  std::unique_ptr<Device> device;
  std::unique_ptr<AttentionKernel> kernel;
};

// Memory of random numbers, valid in every type, and larger than the caches. Each piece taken is
// the one that has not been used for the longest time. Not thread-safe.
class ColdNumbers {
 public:
  static constexpr int64_t kBytes = int64_t{64} << 20;
  // RESOURCE_EXHAUSTED: the machine has no memory.
  static absl::StatusOr<ColdNumbers> Create();
  // Requires: `bytes` <= kBytes.
  std::byte* Take(int64_t bytes);

 private:
  std::byte* data() const { return reinterpret_cast<std::byte*>(memory_.get()); }

  HugeMemory memory_;
  int64_t at_ = 0;
};

// The shape of a measured job, with one sequence.
struct MeasuredShape {
  int32_t heads = 1;  // Query heads and key/value heads.
  int32_t head_dim = 0;
  int64_t q_len = 0, kv_len = 0;
  int64_t window = 0;  // The number of keys that a row sees, itself the last. 0: all keys.
};

// A one-rank job that runs repeatedly, as lanes run it.
class MeasuredJob {
 public:
  // A job with the type and operation of `of`. `machine` and `cold` must outlive it. If `cold` is
  // set, keys and values come from it.
  static absl::StatusOr<MeasuredJob> Create(const Machine& machine, const KernelRates& of,
                                            const MeasuredShape& shape,
                                            ColdNumbers* cold = nullptr);

  struct Took {
    double seconds = 0, cpu_seconds = 0;
  };
  absl::StatusOr<Took> Run();

 private:
  // A tensor with its own memory, or with `cold_bytes` of ColdNumbers.
  struct Tensor {
    std::vector<std::byte> own;
    int64_t cold_bytes = 0;
  };
  absl::Status Fill(std::byte* memory, int64_t bytes) const;
  StagedTensors Staged();

  std::shared_ptr<const RankProgram> program_;
  Device* device_ = nullptr;
  AttentionKernel* kernel_ = nullptr;
  ColdNumbers* cold_ = nullptr;
  std::vector<std::byte> numbers_;
  std::vector<Tensor> tensors_;
};

// The rates of a kernel.
struct MeasuredKernel {
  std::vector<KernelRate> rates;
  // WorkerRates::cpu_share of these measurements.
  double cpu_share = 1;
};

// Measures the kernel with the type and operation of `of` at several head dimensions: full
// attention, windows, and one row over many keys in `cold`. Each job grows as far as the budget
// allows, up to a few thousand rows or 32 MiB; the best of several runs counts. `threads`: threads
// of the kernel. 0: it does not compute on the CPU, so CPU time is ignored.
absl::StatusOr<MeasuredKernel> MeasureKernel(const Engine& engine, const KernelRates& of,
                                             int threads, absl::Duration budget, ColdNumbers* cold);

// One run of a one-rank job.
struct TimedRun {
  int64_t pairs = 0;  // Visible pairs × query heads.
  int64_t rows = 0;   // Rows × query heads.
  double seconds = 0;
  double cpu_seconds = 0;  // CPU time of all threads of the process.
  int64_t keys = 0;        // Keys × key/value heads.
};
// The fraction of the time of `runs` in which their threads had a CPU. In the rest they waited for
// a CPU or for one another. In (0, 1].
double CpuShareOf(const std::vector<TimedRun>& runs, int threads);
// Fits a rate to measured runs:
// - Time per pair: from the difference of `full` and `shorter`, which has half its length. At least
//   half of `full` is counted as pairs.
// - Time per key: what `few_rows` takes beyond its pairs.
// - Time per row: what `windows` takes beyond pairs and keys.
// Pairs are not derived from windows alone: in tiles that a row sees in part, the kernel computes
// more pairs than are visible, so pairs would be too cheap for long rows. If `shorter` has no rows,
// `windows` replaces it.
KernelRate RateOfRuns(int32_t head_dim, const TimedRun& full, const TimedRun& shorter,
                      const TimedRun& windows, const TimedRun& few_rows);

// The cost of a step with a transfer apart from its bytes: the time of one small message in each
// direction.
absl::StatusOr<double> MeasureStep(const Engine& engine, absl::Duration budget,
                                   const std::function<absl::Time()>& now = SteadyNow);

// Bytes per second that a rank sends while it receives as many, between two communicators of this
// process. Measures the transport's overhead, not the network between machines. `now`: the clock
// for the measurement.
absl::StatusOr<double> MeasureLink(const Engine& engine, absl::Duration budget,
                                   const std::function<absl::Time()>& now = SteadyNow);

}  // namespace annulus

#endif  // ANNULUS_WORKER_BACKEND_MEASURE_H_

#ifndef ANNULUS_ATTENTION_PLANNING_KERNEL_RATES_H_
#define ANNULUS_ATTENTION_PLANNING_KERNEL_RATES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "attention/spec/spec.h"

namespace annulus {

// The time that attention takes at one head dimension.
struct KernelRate {
  int32_t head_dim = 128;      // The dimension of q, k and v.
  double pair_seconds = 5e-9;  // Seconds per visible pair and query head, in tasks with many.
  double row_seconds = 0;      // Extra seconds per query row and head of a task.
  // Extra seconds per key and key/value head that a task reads. A task with few rows takes about
  // this in total.
  double key_seconds = 0;
};

// The work of tasks: visible pairs and query rows, each × query heads; keys × key/value heads.
struct KernelWork {
  double pairs = 0, rows = 0, keys = 0;
};
// Seconds of `work` at `rate`.
double SecondsOf(const KernelWork& work, const KernelRate& rate);
// `rate` with its times multiplied by `factor`.
KernelRate Scaled(const KernelRate& rate, double factor);

// The rates of one kernel, as measured by a worker.
struct KernelRates {
  DataType dtype = DataType::kFp32;
  Arithmetic arithmetic = Arithmetic::kOfType;
  std::vector<KernelRate> rates = {KernelRate()};  // By increasing dimension; never empty.
  Operation operation = Operation::kForward;
};

// The rates that a worker measured at start.
struct WorkerRates {
  std::vector<KernelRates> kernels = {KernelRates()};
  double link_bytes_per_second = 1e9;  // One way, between two ranks.
  double step_seconds = 0;             // Fixed cost of a step with a transfer; 0: not measured.
  // The fraction of the time of `kernels` in which a worker thread had a processor, for the thread
  // with the least. On a machine of its own the worker may be faster by 1 / cpu_share. 1 if
  // unknown.
  double cpu_share = 1;
};

// The rate of a job's kernel at the job's dimensions. Between measured dimensions it is linear.
// Below the first it is that of the first; above the last it is proportional to the dimension.
// Gradients take five products per pair, a forward pass two. So gradients from rates of forward
// passes count with a dimension 2.5 times as large.
KernelRate RateOf(const AttentionSpec& spec, const KernelRates& of);

// The entry of `kernels` to use for jobs of `spec`. Points into `kernels`; nullptr if there is
// none. In order of preference:
//
// - the same operation, dtype and arithmetic
// - forward passes of the same dtype and arithmetic
// - forward passes of fp32
const KernelRates* RatesOf(const AttentionSpec& spec, absl::Span<const KernelRates> kernels);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_PLANNING_KERNEL_RATES_H_

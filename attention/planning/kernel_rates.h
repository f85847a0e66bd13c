#ifndef ANNULUS_ATTENTION_PLANNING_KERNEL_RATES_H_
#define ANNULUS_ATTENTION_PLANNING_KERNEL_RATES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "attention/spec/spec.h"

namespace annulus {

// What attention takes at one head dimension.
struct KernelRate {
  int32_t head_dim = 128;      // Of q, k and v.
  double pair_seconds = 5e-9;  // Of a visible pair and query head, where there are many in a row.
  double row_seconds = 0;      // Of a query row and head of a task, beside its pairs.
  // Of a key and key/value head that a task reads, beside its pairs. Few rows take no more.
  double key_seconds = 0;
};

// What tasks do: visible pairs and query rows, each × query heads, and keys × key/value heads.
struct KernelWork {
  double pairs = 0, rows = 0, keys = 0;
};
double SecondsOf(const KernelWork& work, const KernelRate& rate);
KernelRate Scaled(const KernelRate& rate, double factor);

// What one kernel takes, as a worker measured it.
struct KernelRates {
  DataType dtype = DataType::kFp32;
  Arithmetic arithmetic = Arithmetic::kOfType;
  std::vector<KernelRate> rates = {KernelRate()};  // By ascending dimension.
  Operation operation = Operation::kForward;
};

// What a worker measured at start.
struct WorkerRates {
  std::vector<KernelRates> kernels = {KernelRates()};
  double link_bytes_per_second = 1e9;  // One way, between two ranks.
  double step_seconds = 0;             // Of a step with a transfer; 0: not measured.
  // How much of the time of `kernels` the worker's threads had a processor for, where the least of
  // them had: on a machine of its own it may be as much faster. 1 where it is not known.
  double cpu_share = 1;
};

// The rate of a job's kernel at the job's dimensions: linear between those that were measured, of
// which there is at least one; the first one's below it, in proportion to the dimension above the
// last. Gradients are five products for each pair where a forward pass has two: where `of` is of
// forward passes, they take as long as a dimension 2.5 times as large.
KernelRate RateOf(const AttentionSpec& spec, const KernelRates& of);

// Those of `kernels` that jobs of `spec` count with: of its operation, type and arithmetic where
// there are any, or else of forward passes of its type and arithmetic, or of fp32; nullptr where
// there are none of these either.
const KernelRates* RatesOf(const AttentionSpec& spec, absl::Span<const KernelRates> kernels);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_PLANNING_KERNEL_RATES_H_

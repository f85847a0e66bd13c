#ifndef ANNULUS_BENCHMARKS_KERNEL_JOB_H_
#define ANNULUS_BENCHMARKS_KERNEL_JOB_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "attention/mask/mask.h"
#include "attention/schedule/model/block_layout.h"
#include "attention/sharding/row_map.h"
#include "attention/spec/spec.h"
#include "worker/kernel/attention_kernel.h"

namespace annulus::bench {

// One one-rank job in memory: random normal q, k and v, and its schedule's tasks. For gradients:
// also random d_out, a constant LSE that keeps all weights below 1, and delta 0; no bias gradient.
// If the spec has them: random bias, a bit mask that hides half of the pairs, LSE offsets of 0.
class KernelJobData {
 public:
  // `seed` of the random numbers.
  KernelJobData(const AttentionSpec& spec, uint64_t seed);

  // Runs the job as a one-rank worker does: from q, k and v to outputs and LSE; for gradients,
  // identity and accumulate. Returns seconds. Ends the process on an error.
  double Run(AttentionKernel& kernel);

  // Counts two operations per multiply-add of visible pairs, in both products (all five for
  // gradients). Excludes the softmax.
  double flops() const { return flops_; }
  const MaskMap& mask() const { return mask_; }
  absl::Span<const std::byte> keys_and_values() const { return kv_; }

 private:
  void Fill(std::vector<std::byte>& bytes, DataType dtype, uint64_t seed) const;
  void MakeGradientBlocks();
  void MakePairs();

  const AttentionSpec spec_;
  const MaskMap mask_;
  const BlockLayout layout_;
  const RowMap q_rows_, k_rows_;
  KernelJob job_;
  KernelTask task_;                // Covers the whole job.
  bool ends_rows_ = false;         // True if rows begin and end in tasks.
  std::vector<KernelTask> tasks_;  // The tasks of the schedule.
  std::vector<std::byte> q_, kv_, out_, partial_, dkv_, pairs_;
  double flops_ = 0;
};

}  // namespace annulus::bench

#endif  // ANNULUS_BENCHMARKS_KERNEL_JOB_H_

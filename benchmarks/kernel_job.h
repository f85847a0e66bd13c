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

// One job on one rank, in memory: random normal q, k and v, and the tasks of its schedule. Of
// gradients: random d_out too, one LSE that keeps all weights below 1, and no delta; no gradient of
// a bias. Random bias, where the job has one, half of the bit mask's pairs hidden, and LSE offsets
// of 0.
class KernelJobData {
 public:
  // `seed` for the numbers.
  KernelJobData(const AttentionSpec& spec, uint64_t seed);

  // From queries, keys and values to outputs and LSE, as a worker with one rank; of gradients,
  // identity and accumulate. Seconds it took; ends the process on an error.
  double Run(AttentionKernel& kernel);

  // Multiply-adds of visible pairs count twice, for both products (all five of gradients); the
  // softmax counts nothing.
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
  KernelTask task_;                // Over all of it.
  bool ends_rows_ = false;         // Its rows begin and end in tasks.
  std::vector<KernelTask> tasks_;  // As planned.
  std::vector<std::byte> q_, kv_, out_, partial_, dkv_, pairs_;
  double flops_ = 0;
};

}  // namespace annulus::bench

#endif  // ANNULUS_BENCHMARKS_KERNEL_JOB_H_

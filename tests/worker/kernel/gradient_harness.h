#ifndef ANNULUS_TESTS_WORKER_KERNEL_GRADIENT_HARNESS_H_
#define ANNULUS_TESTS_WORKER_KERNEL_GRADIENT_HARNESS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "attention/mask/mask.h"
#include "attention/schedule/model/block_layout.h"
#include "attention/sharding/row_map.h"
#include "attention/spec/spec.h"
#include "tests/reference/gradient_budget.h"
#include "tests/worker/kernel/kernel_harness.h"
#include "worker/kernel/attention_kernel.h"

namespace annulus {

// A gradients job in blocks, as a worker stores it: KernelHarness for the backward pass. Query
// pieces have kDq accumulators, key shards kDkv ones.
class GradientHarness {
 public:
  GradientHarness(const AttentionSpec& spec, const reference::Input& input,
                  const reference::Upstream& upstream, const Cuts& cuts);

  // Delta, identity, accumulate, finish. With `one_side_at_a_time`, each task runs twice, once for
  // each accumulator.
  absl::Status Run(AttentionKernel& kernel, const KernelControl& control = {},
                   bool one_side_at_a_time = false);

  // The outputs of the last Run, in packed rows.
  reference::GradientAnswer answer() const;
  // Bytes of all accumulators, to compare runs bit for bit.
  std::vector<std::byte> state() const;

  KernelJob job() const;
  std::vector<KernelTask> Tasks();
  absl::Status Prepare(AttentionKernel& kernel);  // Delta, sinks and identity.

 private:
  struct Piece {  // Rows × heads of the queries.
    std::unique_ptr<OwnedBlock> q, forward, dq, out, d_sink;
    std::unique_ptr<OwnedBlock> pairs;   // nullptr: the job has no such inputs.
    std::unique_ptr<OwnedBlock> d_bias;  // nullptr: not requested.
  };
  struct Shard {
    RowMap rows;
    std::unique_ptr<OwnedBlock> kv, dkv, out;
  };
  void MakePieces(const reference::Input& input, const reference::Upstream& upstream);
  void MakeShards(const reference::Input& input);
  absl::Status Finish(AttentionKernel& kernel);
  void AddBiasGradient(reference::GradientAnswer* answer) const;

  const AttentionSpec spec_;
  const Cuts cuts_;
  const MaskMap mask_;
  const BlockLayout layout_;
  RowMap q_rows_;
  std::vector<Piece> pieces_;
  std::vector<Shard> shards_;
};

// Runs the job on `kernel` and checks it against the error budget.
testing::AssertionResult GradientsWithinBudget(AttentionKernel& kernel, const AttentionSpec& spec,
                                               const reference::Input& input,
                                               const reference::Upstream& upstream,
                                               const Cuts& cuts);

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_KERNEL_GRADIENT_HARNESS_H_

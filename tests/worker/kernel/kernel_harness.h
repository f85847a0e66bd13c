#ifndef ANNULUS_TESTS_WORKER_KERNEL_KERNEL_HARNESS_H_
#define ANNULUS_TESTS_WORKER_KERNEL_KERNEL_HARNESS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/mask/mask.h"
#include "attention/schedule/model/block_layout.h"
#include "attention/sharding/row_map.h"
#include "attention/spec/spec.h"
#include "tests/reference/budget.h"
#include "tests/reference/reference_attention.h"
#include "worker/kernel/attention_kernel.h"

namespace annulus {

// The cuts of a job before a kernel sees it. Cut points are sorted and strictly inside the range.
struct Cuts {
  std::vector<int64_t> q_rows;   // Each piece has a separate query buffer and accumulator.
  std::vector<int32_t> q_heads;  // Like q_rows.
  int key_shards = 1;            // Key rows are distributed to this many buffers …
  bool striped = false;          // … row by row, or in equal runs.
  std::vector<int64_t> keys;     // Each shard's rows are cut into tasks here.
  bool call_per_task = false;    // One Accumulate call for each task, or one for all.
};

std::string Describe(const AttentionSpec& spec, const Cuts& cuts);

// PiecesOf: [0, rows) cut at `cuts`. AllRows: the rows as a map. Also the key rows of a shard.
std::vector<Interval> PiecesOf(int64_t rows, const std::vector<int64_t>& cuts);
RowMap AllRows(int64_t rows);
RowMap RowsOfShard(int64_t rows, const Cuts& cuts, int64_t shard);

// The task of a query block's rows and heads with local key rows, and its coverage.
Task TaskOf(const MaskMap& mask, const RowMap& q_rows, const RowMap& k_rows, const Block& q,
            Interval keys);

// A buffer of exactly the block's size, filled with 0xff (NaN in every format).
struct OwnedBlock {
  OwnedBlock(const BlockLayout& layout, const Block& block);
  BlockView view() { return {block, bytes.data()}; }

  Block block;
  std::vector<std::byte> bytes;
};

// The bias, bit mask and LSE offset of the queries in `block`; nullptr if the job has none.
std::unique_ptr<OwnedBlock> PairsBeside(const AttentionSpec& spec, const BlockLayout& layout,
                                        const reference::Input& input, Block block);

// A job in blocks, as a worker stores it.
class KernelHarness {
 public:
  // `input` must be made by reference::InputOf(spec).
  KernelHarness(const AttentionSpec& spec, const reference::Input& input, const Cuts& cuts);

  // Identity, accumulate, finish. Tasks without visible pairs are dropped and full ones are
  // marked, as in a schedule.
  absl::Status Run(AttentionKernel& kernel, const KernelControl& control = {});

  // Like Run, with every other task cut by rows; and with rows that begin and end in these tasks
  // where possible (attention/schedule/passes/row_ends.h), for kernels that end rows.
  absl::Status RunCutRows(AttentionKernel& kernel);
  absl::Status RunEndingRows(AttentionKernel& kernel);
  // The number of tasks of that run in which rows ended.
  int64_t tasks_ended() const { return tasks_ended_; }

  // Converts accumulators to outputs, as at the end of Run.
  absl::Status FinishAll(AttentionKernel& kernel);

  // The outputs of the last Run, in packed rows.
  reference::Answer answer() const;
  // Bytes of all accumulators, and of all outputs, to compare runs bit for bit.
  std::vector<std::byte> state() const;
  std::vector<std::byte> outputs() const;

  KernelJob job() const;
  std::vector<KernelTask> Tasks();
  std::vector<KernelTask> CutTasks();

 private:
  struct Piece {  // Rows × heads of the queries, with accumulator and output.
    std::unique_ptr<OwnedBlock> q, partial, out;
    std::unique_ptr<OwnedBlock> pairs;  // nullptr: the job has neither bias nor bit mask.
  };
  struct Shard {
    RowMap rows;
    std::unique_ptr<OwnedBlock> kv;
  };
  void MakePieces(const reference::Input& input);
  void MakeShards(const reference::Input& input);
  absl::Status Accumulate(AttentionKernel& kernel, absl::Span<const KernelTask> tasks,
                          const KernelControl& control);
  // Applies to all pieces, or to those that `which` selects.
  absl::Status ApplyToAll(AttentionKernel& kernel, KernelOp::Kind kind,
                          const std::vector<bool>& which = {});

  const AttentionSpec spec_;
  const Cuts cuts_;
  const MaskMap mask_;
  const BlockLayout layout_;
  RowMap q_rows_;
  std::vector<Piece> pieces_;
  int64_t tasks_ended_ = 0;
  std::vector<Shard> shards_;
};

// Runs the job on `kernel` and checks it against the error budget.
testing::AssertionResult WithinBudget(AttentionKernel& kernel, const AttentionSpec& spec,
                                      const reference::Input& input, const Cuts& cuts);

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_KERNEL_KERNEL_HARNESS_H_

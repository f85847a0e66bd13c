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

// How a job is cut before a kernel sees it. Cut points are sorted, inside the range, exclusive of
// its ends.
struct Cuts {
  std::vector<int64_t> q_rows;   // Each piece is a query buffer and an accumulator of its own.
  std::vector<int32_t> q_heads;  // So is each piece here.
  int key_shards = 1;            // Key rows are dealt to this many buffers …
  bool striped = false;          // … row by row, or in equal runs.
  std::vector<int64_t> keys;     // Each shard's rows are cut into tasks here.
  bool call_per_task = false;    // One Accumulate call for each task, or one for all.
};

std::string Describe(const AttentionSpec& spec, const Cuts& cuts);

// [0, rows) cut at `cuts`, and as a map of its own; the key rows of a shard.
std::vector<Interval> PiecesOf(int64_t rows, const std::vector<int64_t>& cuts);
RowMap AllRows(int64_t rows);
RowMap RowsOfShard(int64_t rows, const Cuts& cuts, int64_t shard);

// The rows and heads of a query block with local key rows, and what they see.
Task TaskOf(const MaskMap& mask, const RowMap& q_rows, const RowMap& k_rows, const Block& q,
            Interval keys);

// A buffer of exactly the block's size, filled with 0xff (NaN in every format).
struct OwnedBlock {
  OwnedBlock(const BlockLayout& layout, const Block& block);
  BlockView view() { return {block, bytes.data()}; }

  Block block;
  std::vector<std::byte> bytes;
};

// The bias, bit mask and offset of the queries in `block`; nullptr where the job has none.
std::unique_ptr<OwnedBlock> PairsBeside(const AttentionSpec& spec, const BlockLayout& layout,
                                        const reference::Input& input, Block block);

// A job laid out in blocks as a worker would hold it.
class KernelHarness {
 public:
  // `input` as made by reference::InputOf(spec).
  KernelHarness(const AttentionSpec& spec, const reference::Input& input, const Cuts& cuts);

  // Identity, accumulate, finish. Tasks that see nothing are dropped, full ones are marked, as a
  // schedule does.
  absl::Status Run(AttentionKernel& kernel, const KernelControl& control = {});

  // The same with every other task cut by rows; and with rows that begin and end in these tasks
  // wherever they can (attention/schedule/passes/row_ends.h), for kernels that end rows.
  absl::Status RunCutRows(AttentionKernel& kernel);
  absl::Status RunEndingRows(AttentionKernel& kernel);
  // Tasks of that run with which rows ended.
  int64_t tasks_ended() const { return tasks_ended_; }

  // Accumulators → outputs, as at the end of Run.
  absl::Status FinishAll(AttentionKernel& kernel);

  // What the last Run left in the outputs, in packed rows.
  reference::Answer answer() const;
  // Bytes of all accumulators, and of all outputs: to compare runs bit for bit.
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
  // Of all pieces, or of those that `which` says.
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

// Runs the job on `kernel` and judges it by the error budget.
testing::AssertionResult WithinBudget(AttentionKernel& kernel, const AttentionSpec& spec,
                                      const reference::Input& input, const Cuts& cuts);

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_KERNEL_KERNEL_HARNESS_H_

#include "worker/kernel/cuda/key_split.h"

#include <algorithm>

#include "worker/kernel/cuda/forward_args.h"

namespace annulus::cuda {
namespace {

// Blocks of threads that keep the GPUs of today busy: two for each of 132 multiprocessors, about.
constexpr int64_t kEnoughBlocks = 256;
// Of kKeyBlock keys: what a chunk takes is then much more than its merge.
constexpr int64_t kLeastChunk = 4;

}  // namespace

KeyChunks SplitKeys(const KernelJob& job, absl::Span<const KernelTask> tasks,
                    int64_t partial_bytes) {
  KeyChunks whole;
  if (job.spec->deterministic || tasks.empty()) return whole;
  int64_t key_blocks = 0;
  for (const KernelTask& bound : tasks) {
    if (bound.out_q.data != tasks[0].out_q.data) return whole;
    key_blocks += KeyBlocksOf(bound.task);
  }
  const Block rows = RowsOfTasks(tasks);
  const int group = job.layout->group();
  const int64_t tiles =
      (rows.row_end * group + kTileSlots - 1) / kTileSlots - rows.row_begin * group / kTileSlots;
  const int64_t heads = (rows.head_end + group - 1) / group - rows.head_begin / group;
  const int64_t fit = 1 + partial_bytes / std::max<int64_t>(1, job.layout->BlockBytes(rows));
  const int64_t chunks = std::min(
      {kEnoughBlocks / std::max<int64_t>(1, tiles * heads), fit, key_blocks / kLeastChunk});
  return chunks < 2 ? whole : CutIntoChunks(tasks, chunks);
}

}  // namespace annulus::cuda

#include "worker/kernel/cuda/launch/key_split.h"

#include <algorithm>

#include "worker/kernel/cuda/launch/hopper_config.h"

namespace annulus::cuda {
namespace {

// Thread blocks that fill today's GPUs: about one for each of 132 multiprocessors. A multiprocessor
// has room for two blocks of the portable kernel.
constexpr int64_t kMultiprocessors = 128;
constexpr int64_t kPortableBlocks = 2, kHopperBlocks = 1;
// In key blocks of kKeyBlock: the work of a chunk is then far larger than that of its merge.
constexpr int64_t kLeastChunk = 4;

}  // namespace

KvSplit SplitKeys(const KernelJob& job, absl::Span<const KernelTask> tasks, bool hopper,
                  int64_t partial_bytes) {
  KvSplit whole;
  if (job.spec->deterministic || tasks.empty()) return whole;
  int64_t key_blocks = 0;
  for (const KernelTask& bound : tasks) {
    if (bound.out_q.data != tasks[0].out_q.data) return whole;
    key_blocks += KeyBlocksOf(bound.task);
  }
  const Block rows = RowsOfTasks(tasks);
  const int group = job.layout->group();
  const int64_t slots = hopper ? kHopperSlots : kTileSlots;
  const int64_t tiles = (rows.row_end * group + slots - 1) / slots - rows.row_begin * group / slots;
  const int64_t heads = (rows.head_end + group - 1) / group - rows.head_begin / group;
  const int64_t fit = 1 + partial_bytes / std::max<int64_t>(1, job.layout->BlockBytes(rows));
  const int64_t enough = kMultiprocessors * (hopper ? kHopperBlocks : kPortableBlocks);
  const int64_t chunks =
      std::min({enough / std::max<int64_t>(1, tiles * heads), fit, key_blocks / kLeastChunk});
  return chunks < 2 ? whole : SplitKvIntoChunks(tasks, chunks);
}

}  // namespace annulus::cuda

#include "worker/kernel/split_kv.h"

#include <algorithm>

#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {
namespace {

// Small enough to balance the threads, and large compared with the cost of a merge.
constexpr int64_t kChunkBlocks = 16;
// The limit for all partials together.
constexpr int64_t kPartialBytes = int64_t{16} << 20;

int64_t FirstBlock(const Task& task) { return task.k_begin / kKeyBlock; }
int64_t EndBlock(const Task& task) { return (task.k_end + kKeyBlock - 1) / kKeyBlock; }

// The tiles from the first slot of any task to the last; 0 if there is no slot.
int64_t TilesCovered(absl::Span<const KernelTask> tasks, int group) {
  if (tasks.empty()) return 0;
  const Block rows = RowsOfTasks(tasks);
  if (rows.row_begin >= rows.row_end) return 0;
  return (rows.row_end * group - 1) / kTileRows - rows.row_begin * group / kTileRows + 1;
}

// True if the rows of all tasks, at least one, lie in one accumulator.
bool InOneBuffer(absl::Span<const KernelTask> tasks) {
  return std::all_of(tasks.begin(), tasks.end(), [&](const KernelTask& task) {
    return task.out_q.data == tasks[0].out_q.data;
  });
}

}  // namespace

int64_t KeyBlocksOf(const Task& task) { return EndBlock(task) - FirstBlock(task); }

Block RowsOfTasks(absl::Span<const KernelTask> tasks) {
  Block rows = tasks[0].out_q.block;
  rows.row_begin = tasks[0].task.q_begin;
  rows.row_end = tasks[0].task.q_end;
  rows.head_begin = tasks[0].task.head_begin;
  rows.head_end = tasks[0].task.head_end;
  for (const KernelTask& bound : tasks) {
    rows.row_begin = std::min(rows.row_begin, bound.task.q_begin);
    rows.row_end = std::max(rows.row_end, bound.task.q_end);
    rows.head_begin = std::min(rows.head_begin, bound.task.head_begin);
    rows.head_end = std::max(rows.head_end, bound.task.head_end);
  }
  return rows;
}

bool CoversOneTile(absl::Span<const KernelTask> tasks, int group) {
  return TilesCovered(tasks, group) == 1;
}

bool CoversFewTiles(absl::Span<const KernelTask> tasks, int group) {
  const int64_t tiles = TilesCovered(tasks, group);
  return tiles > 0 && tiles <= kPassingTiles && InOneBuffer(tasks);
}

KvSplit SplitKv(const KernelJob& job, absl::Span<const KernelTask> tasks) {
  const KvSplit whole;
  if (job.spec->deterministic || !CoversOneTile(tasks, job.layout->group())) return whole;
  if (!InOneBuffer(tasks)) return whole;
  int64_t blocks = 0;
  for (const KernelTask& bound : tasks) blocks += KeyBlocksOf(bound.task);
  const int64_t bytes = job.layout->BlockBytes(RowsOfTasks(tasks));
  const int64_t fit = kPartialBytes / std::max<int64_t>(1, bytes);
  const int64_t chunks = std::min(fit, blocks / kChunkBlocks);
  return chunks < 2 ? whole : SplitKvIntoChunks(tasks, chunks);
}

KvSplit SplitKvIntoChunks(absl::Span<const KernelTask> tasks, int64_t chunks) {
  KvSplit cut;
  cut.partial = RowsOfTasks(tasks);
  int64_t blocks = 0;
  for (const KernelTask& bound : tasks) blocks += KeyBlocksOf(bound.task);
  const int64_t size = (blocks + chunks - 1) / chunks;
  int64_t room = size;
  cut.chunks = 1;
  for (const KernelTask& bound : tasks) {
    for (int64_t block = FirstBlock(bound.task); block < EndBlock(bound.task);) {
      if (room == 0) {
        ++cut.chunks;
        room = size;
      }
      const int64_t end = std::min(EndBlock(bound.task), block + room);
      cut.tasks.push_back(bound);
      Task& part = cut.tasks.back().task;
      part.k_begin = std::max(part.k_begin, block * kKeyBlock);
      part.k_end = std::min(part.k_end, end * kKeyBlock);
      cut.chunk.push_back(cut.chunks - 1);
      room -= end - block;
      block = end;
    }
  }
  return cut;
}

}  // namespace annulus

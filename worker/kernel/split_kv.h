#ifndef ANNULUS_WORKER_KERNEL_SPLIT_KV_H_
#define ANNULUS_WORKER_KERNEL_SPLIT_KV_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {

// Few query rows over many keys (decoding): one tile of rows has nothing to share between threads
// but its keys. Such a call is cut into chunks of keys, each with partials of its own, which are
// merged in order. How it is cut depends on the shape alone, so the bits do not depend on threads.
// A pure function; no arithmetic on tensors.
struct KvSplit {
  std::vector<KernelTask> tasks;  // In order; with the accumulator of the call.
  std::vector<int32_t> chunk;     // Of each task.
  int32_t chunks = 0;
  Block partial;  // The rows and heads that a chunk's own partials have.
};

// No chunks: the call stays whole. So do deterministic jobs, whose rows fold all keys in one order.
KvSplit SplitKv(const KernelJob& job, absl::Span<const KernelTask> tasks);

// The tasks, not none, in `chunks` chunks at most, of equal numbers of key blocks (kKeyBlock).
KvSplit SplitKvIntoChunks(absl::Span<const KernelTask> tasks, int64_t chunks);

// Key blocks of a task; the rows and heads of all tasks, not none, as a block like their output.
int64_t KeyBlocksOf(const Task& task);
Block RowsOfTasks(absl::Span<const KernelTask> tasks);

// Tiles of a call so small that each thread packs the keys that it meets.
inline constexpr int kPassingTiles = 2;
static_assert(kPassingTiles <= kMostTiles);

// Whether the rows of all tasks lie in one tile of query slots, or in kPassingTiles neighbouring
// ones of one buffer.
bool CoversOneTile(absl::Span<const KernelTask> tasks, int group);
bool CoversFewTiles(absl::Span<const KernelTask> tasks, int group);

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_SPLIT_KV_H_

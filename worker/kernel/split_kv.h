#ifndef ANNULUS_WORKER_KERNEL_SPLIT_KV_H_
#define ANNULUS_WORKER_KERNEL_SPLIT_KV_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {

// Split-KV for few query rows over many keys (decoding). One tile of rows leaves nothing but its
// keys to share between threads. So the call is split into chunks of keys. Each chunk has its own
// partials, which are merged in order. The split depends on the shape alone, so the bits do not
// depend on the number of threads. Pure functions: no arithmetic on tensors.
struct KvSplit {
  std::vector<KernelTask> tasks;  // In order, with the call's accumulator as out_q.
  std::vector<int32_t> chunk;     // The chunk of each task.
  int32_t chunks = 0;
  Block partial;  // The rows and heads of a chunk's own partials.
};

// Splits a call by its shape. chunks == 0: the call stays whole. Deterministic jobs always stay
// whole: their rows fold all keys in one order.
KvSplit SplitKv(const KernelJob& job, absl::Span<const KernelTask> tasks);

// Splits `tasks`, at least one, into at most `chunks` chunks of equal numbers of key blocks
// (kKeyBlock).
KvSplit SplitKvIntoChunks(absl::Span<const KernelTask> tasks, int64_t chunks);

// KeyBlocksOf: the number of key blocks of a task. RowsOfTasks: the rows and heads of all tasks, at
// least one, as a block of their output's kind.
int64_t KeyBlocksOf(const Task& task);
Block RowsOfTasks(absl::Span<const KernelTask> tasks);

// Tiles of a call so small that each thread packs the key blocks that it reads.
inline constexpr int kPassingTiles = 2;
static_assert(kPassingTiles <= kMostTiles);

// CoversOneTile: true if the rows of all tasks lie in one tile of query slots. CoversFewTiles: true
// if they lie in kPassingTiles neighbouring tiles of one buffer.
bool CoversOneTile(absl::Span<const KernelTask> tasks, int group);
bool CoversFewTiles(absl::Span<const KernelTask> tasks, int group);

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_SPLIT_KV_H_

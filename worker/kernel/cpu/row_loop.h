#ifndef ANNULUS_WORKER_KERNEL_CPU_ROW_LOOP_H_
#define ANNULUS_WORKER_KERNEL_CPU_ROW_LOOP_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "attention/mask/mask.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/cpu/isa/tile_isa.h"
#include "worker/kernel/visibility.h"

namespace annulus {

// The unpacked path: calls that are split into chunks of keys (split_kv.h), with so few query slots
// that K and V are best read in place. Such a call is bound by memory, and packing would only write
// more.

// Data that all chunks of a call share.
struct RowCall {
  const KernelJob* job = nullptr;
  const TileIsa* isa = nullptr;
  absl::Span<const KernelTask> tasks;  // The tasks of each chunk stand side by side.
  const CallVisibility* visible = nullptr;
  KernelControl control;
};

// True if RowLoop serves the call, by its shape and mask: a pure function. It serves no job that
// changes scores or drops weights, and no keys that many slots see on average.
bool AttendsRows(const RowCall& call);

// Returns the tasks [begin, end) of each chunk.
std::vector<Interval> ChunksOf(absl::Span<const KernelTask> tasks);

// Brings a chunk's partials up to date. For one thread. The bits of a row and head depend on its
// own inputs and on the chunk's tasks.
class RowLoop {
 public:
  explicit RowLoop(const RowCall& call) : call_(call) {}
  // If the call is stopped, it ends early and leaves the partials undefined.
  void Run(Interval tasks);

 private:
  struct Slot {
    int64_t row = 0;  // shard-local
    int32_t q_head = 0;
    absl::Span<const Interval> spans;
  };
  struct alignas(64) Line {
    float value[kUnpackedKeys];
  };

  void RunTask(int32_t task);
  // Finds the slots of each key/value head that see some of the task's keys.
  void GatherSlots(int32_t task);
  void LoadSlots(const KernelTask& task);
  // Load queries as RowSlot::query says: as numbers, or as pairs.
  void LoadQueries(const KernelTask& task);
  void LoadQueryPairs(const KernelTask& task);
  void StoreSlots(const KernelTask& task) const;
  // Attends the slots of head `head`, counted from the task's first one, to `rows`: keys from
  // `first` on.
  void AttendHead(int head, int64_t first, const UnpackedRows& rows);

  const RowCall call_;
  std::vector<Slot> places_;     // Head by head.
  std::vector<RowSlot> slots_;   // In the same order.
  std::vector<int> first_slot_;  // The first slot of each head, and the end of the last.
  std::vector<Line> queries_, memory_;
  // keys_: the hull of the keys that some slot sees. seen_by_all_: the keys that all slots see.
  Interval keys_, seen_by_all_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ROW_LOOP_H_

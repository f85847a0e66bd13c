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

// Calls that are cut into chunks of keys (split_kv.h), of so few query slots that keys and values
// are best read as they lie: memory is what they wait for, and to pack would only write more.

// What all chunks of a call share.
struct RowCall {
  const KernelJob* job = nullptr;
  const TileIsa* isa = nullptr;
  absl::Span<const KernelTask> tasks;  // Of one chunk side by side.
  const CallVisibility* visible = nullptr;
  KernelControl control;
};

// Whether the call is RowLoop's, by its shape and mask: a pure function. Not what changes scores or
// drops weights, nor keys that many slots see on average.
bool AttendsRows(const RowCall& call);

// The tasks [begin, end) of each chunk.
std::vector<Interval> ChunksOf(absl::Span<const KernelTask> tasks);

// Brings a chunk's partials up to date. One thread's. The bits of a row and head depend on its own
// inputs and on the chunk's tasks.
class RowLoop {
 public:
  explicit RowLoop(const RowCall& call) : call_(call) {}
  // Ends early when the call is stopped, and leaves the partials undefined then.
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
  // As RowSlot::query says, of numbers and of pairs.
  void LoadQueries(const KernelTask& task);
  void LoadQueryPairs(const KernelTask& task);
  void StoreSlots(const KernelTask& task) const;
  // Slots of head `head`, counted from the task's first one, against `rows`, keys from `first` on.
  void AttendHead(int head, int64_t first, const UnpackedRows& rows);

  const RowCall call_;
  std::vector<Slot> places_;     // Head by head.
  std::vector<RowSlot> slots_;   // In the same order.
  std::vector<int> first_slot_;  // Of each head, and behind the last one.
  std::vector<Line> queries_, memory_;
  Interval keys_,
      seen_by_all_;  // What some slot sees lies in the first, what all see is the other.
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_ROW_LOOP_H_

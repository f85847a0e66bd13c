#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_SLOTS_INL_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_SLOTS_INL_H_

#include "worker/kernel/cuda/launch/hopper_config.h"
#include "worker/kernel/cuda/launch/table_reader.h"

// Query slots of the kernels for sm_90a: their rows, the keys that they see, and loads of queries.
// Included by hopper_producer-inl.h, hopper_softmax-inl.h and hopper_gradient_rows-inl.h. Start at
// HopperSlots.
namespace annulus::cuda {

// One of a thread's two slots, and the spans of a task's keys that it has yet to see.
struct HopperSlot {
  int32_t row = -1, head = 0;  // −1: it sees no key of the task.
  int32_t next = 0, last = 0;  // Indexes in ForwardTables::spans.
};

// The slots of an item; a consumer group has kGroupSlots of them.
template <class GPU, class CONFIG>
struct HopperSlots {
  GPU& gpu;
  const ForwardArgs& args;
  const ForwardItem& item;
  TableReader<GPU> tables{gpu, args};

  struct Place {
    int32_t row, head;
    bool in_task;
  };
  ANNULUS_GPU Place PlaceOf(const ForwardTask& task, int slot) const {
    const auto before =
        static_cast<int32_t>(item.tile * kHopperSlots - int64_t{item.first_row} * args.group);
    const int32_t row = item.first_row + (before + slot) / args.group;
    const int32_t head = item.kv_head * args.group + (before + slot) % args.group;
    return {
        row, head,
        row >= task.q_begin && row < task.q_end && head >= task.head_begin && head < task.head_end};
  }

  // Lane 4·g + c of a warp has its slots g and g + 8.
  ANNULUS_GPU Place PlaceOfThread(const ForwardTask& task, int half) const {
    const int thread = gpu.Anew(gpu.Thread());
    const int lane = thread % 32, warp = thread / 32 - (kGroupThreads / 32);
    return PlaceOf(task, warp * 16 + half * 8 + lane / 4);
  }

  ANNULUS_GPU HopperSlot Find(const ForwardTask& task, int half) const {
    const Place place = PlaceOfThread(task, half);
    HopperSlot slot;
    if (!place.in_task) return slot;
    slot.head = place.head;
    slot.last = 1;
    if (task.class_at >= 0) {
      const auto of_head = tables.template Get<int32_t>(args.at.class_of_head, place.head);
      const int64_t first = tables.template Get<int32_t>(args.at.classes, task.class_at + of_head) +
                            place.row - task.q_begin;
      slot.next = tables.template Get<int32_t>(args.at.firsts, first);
      slot.last = tables.template Get<int32_t>(args.at.firsts, first + 1);
    }
    if (slot.next < slot.last) slot.row = place.row;
    return slot;
  }

  // The bits of the thread's scores that the slot sees. Call it for tiles in order.
  ANNULUS_GPU uint32_t VisibleOf(const ForwardTask& task, HopperSlot& slot, int32_t tile) const {
    const int32_t from = tile * CONFIG::kKeys, to = from + CONFIG::kKeys;
    const int first = gpu.Thread() % 4 * 2;
    uint32_t seen = 0;
    for (; slot.next < slot.last; ++slot.next) {
      const KeySpan32 span = task.class_at < 0
                                 ? KeySpan32{task.k_begin, task.k_end}
                                 : tables.template Get<KeySpan32>(args.at.spans, slot.next);
      if (span.begin >= to) break;
      seen |= KeyBits(span.begin - from, Least(span.end, to) - from, first);
      if (span.end > to) break;  // The rest is in the next tile.
    }
    return seen;
  }

  // The kQueryThreads start to copy queries to shared memory (WaitCopies). Missing columns and
  // slots become 0.
  ANNULUS_GPU void CopyQueries(const ForwardTask& task, int stage) const {
    constexpr int kChunks = CONFIG::kPanels * 8, kSlotsAtOnce = kQueryThreads / kChunks;
    static_assert(kQueryThreads % kChunks == 0, "a thread has a column");
    const auto thread =
        static_cast<uint32_t>(gpu.Anew(gpu.Thread()) - (kGroupThreads - kQueryThreads));
    ANNULUS_NO_UNROLL
    for (int slot = thread / kChunks; slot < kHopperSlots; slot += kSlotsAtOnce) {
      const int chunk = thread % kChunks;
      const Place place = PlaceOf(task, slot);
      const bool there = place.in_task && chunk * 8 < args.head_dim;
      const int32_t offset = (place.head - task.q.head_begin) * args.head_dim * 2 + chunk * 16;
      const std::byte* const from =
          there ? At(task.q, place.row, task.q.head_begin, offset, 0) : task.q.data;
      const uint32_t to = CONFIG::QueriesAt(stage, slot / kGroupSlots) +
                          chunk / 8 * CONFIG::kQueryPanelBytes +
                          slot % kGroupSlots * kPanelRowBytes + chunk % 8 * 16;
      gpu.CopyChunkLater(Swizzle128(to), from, there);
    }
    gpu.CommitCopies();
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_SLOTS_INL_H_

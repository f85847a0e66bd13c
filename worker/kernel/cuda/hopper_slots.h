#ifndef ANNULUS_WORKER_KERNEL_CUDA_HOPPER_SLOTS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_HOPPER_SLOTS_H_

#include "worker/kernel/cuda/hopper_config.h"
#include "worker/kernel/cuda/table_reader.h"

namespace annulus::cuda {

// One of the two slots of a thread, and the spans of keys that it still sees of a task.
struct HopperSlot {
  int32_t row = -1, head = 0;  // −1: it sees nothing in the task.
  int32_t next = 0, last = 0;  // In ForwardTables::spans.
};

// The slots of a consumer group in an item.
template <class GPU, class CONFIG>
struct HopperSlots {
  GPU& gpu;
  const ForwardArgs& args;
  const ForwardItem& item;
  TableReader<GPU> tables{gpu, args};
  int group = gpu.Thread() / kGroupThreads - 1;

  struct Place {
    int64_t row;
    int32_t head;
    bool in_task;
  };
  ANNULUS_GPU Place PlaceOf(const ForwardTask& task, int slot) const {
    const int64_t number = item.tile * kHopperSlots + group * kGroupSlots + slot;
    const int64_t row = number / args.group;
    const auto head = static_cast<int32_t>(item.kv_head * args.group + number % args.group);
    return {
        row, head,
        row >= task.q_begin && row < task.q_end && head >= task.head_begin && head < task.head_end};
  }

  // Lane 4·g + c of a warp has its slots g and g + 8.
  ANNULUS_GPU HopperSlot Find(const ForwardTask& task, int half) const {
    const int thread = gpu.Anew(gpu.Thread());
    const int lane = thread % 32, warp = thread % kGroupThreads / 32;
    const Place place = PlaceOf(task, warp * 16 + half * 8 + lane / 4);
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
    if (slot.next < slot.last) slot.row = static_cast<int32_t>(place.row);
    return slot;
  }

  // Which of the thread's scores the slot sees; tiles come in order.
  ANNULUS_GPU uint32_t SeenOf(const ForwardTask& task, HopperSlot& slot, int32_t tile) const {
    const int32_t from = tile * CONFIG::kKeys, to = from + CONFIG::kKeys;
    const int first = gpu.Thread() % 4 * 2;
    uint32_t seen = 0;
    for (; slot.next < slot.last; ++slot.next) {
      const KeySpan32 span = task.class_at < 0
                                 ? KeySpan32{task.k_begin, task.k_end}
                                 : tables.template Get<KeySpan32>(args.at.spans, slot.next);
      if (span.begin >= to) break;
      seen |= KeyBits(span.begin - from, Least(span.end, to) - from, first);
      if (span.end > to) break;  // The next tile has the rest.
    }
    return seen;
  }

  // Brings the group's queries to shared memory; columns and slots that are not there are 0.
  ANNULUS_GPU void LoadQueries(const ForwardTask& task, uint32_t to) const {
    constexpr int kChunks = CONFIG::kPanels * 8;
    for (int i = gpu.Thread() % kGroupThreads; i < kGroupSlots * kChunks; i += kGroupThreads) {
      const int slot = i / kChunks, chunk = i % kChunks;
      const Place place = PlaceOf(task, slot);
      Chunk value = {{0, 0, 0, 0}};
      if (place.in_task && chunk * 8 < args.head_dim)
        value = gpu.template Load<Chunk>(
            At(task.q, place.row, place.head, chunk * 16, int64_t{args.head_dim} * 2));
      gpu.template StoreShared<Chunk>(Swizzle128(to + chunk / 8 * CONFIG::kQueryPanelBytes +
                                                 slot * kPanelRowBytes + chunk % 8 * 16),
                                      value);
    }
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_HOPPER_SLOTS_H_

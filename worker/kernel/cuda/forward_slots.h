#ifndef ANNULUS_WORKER_KERNEL_CUDA_FORWARD_SLOTS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_FORWARD_SLOTS_H_

#include <climits>

#include "worker/kernel/cuda/forward_config.h"
#include "worker/kernel/cuda/table_reader.h"

namespace annulus::cuda {

// What a thread knows of the slot with its number: the span of keys at hand, and those after it.
struct SlotSpans {
  int32_t begin = 0, end = 0;
  int32_t next = 0, last = 0;  // In ForwardTables::spans.
};

// Finds what thread's slot of a tile sees in a task, and tells the others in shared memory.
template <class GPU, class CONFIG>
struct SlotFinder {
  GPU& gpu;
  const ForwardArgs& args;
  const ForwardTask& task;
  TableReader<GPU> tables{gpu, args};

  ANNULUS_GPU void Put(int field, int slot, int32_t value) const {
    gpu.template StoreShared<int32_t>(SlotAt<CONFIG>(field, slot), value);
  }
  ANNULUS_GPU void PutFloat(int field, int slot, float value) const {
    gpu.template StoreShared<float>(SlotAt<CONFIG>(field, slot), value);
  }

  ANNULUS_GPU SlotSpans Find(int64_t tile, int32_t kv_head, int slot) const {
    const int64_t number = tile * kTileSlots + slot;
    const int64_t row = number / args.group;
    const auto head = static_cast<int32_t>(kv_head * args.group + number % args.group);
    SlotSpans spans;
    bool one = true;
    const bool mine =
        row >= task.q_begin && row < task.q_end && head >= task.head_begin && head < task.head_end;
    if (mine && task.class_at < 0) {
      spans.begin = task.k_begin;
      spans.end = task.k_end;
    } else if (mine) {
      const auto of_head = tables.template Get<int32_t>(args.at.class_of_head, head);
      const int64_t first = tables.template Get<int32_t>(args.at.classes, task.class_at + of_head) +
                            row - task.q_begin;
      spans.next = tables.template Get<int32_t>(args.at.firsts, first);
      spans.last = tables.template Get<int32_t>(args.at.firsts, first + 1);
      one = spans.last - spans.next == 1;
    }
    int32_t end = spans.end;
    if (spans.next < spans.last) {
      end = tables.template Get<KeySpan32>(args.at.spans, spans.last - 1).end;
      Advance(&spans);
    }
    const bool sees = spans.begin < spans.end;
    PutHull(slot, sees ? static_cast<int32_t>(row) : -1, spans, end, one);
    Put(kSlotHead, slot, head);
    if constexpr (CONFIG::kChanges) FindChanges(slot, static_cast<int32_t>(row), head, sees);
    return spans;
  }

  // `row`: −1, or a slot that sees what is from spans.begin on, before `end`; all of it where
  // `one`.
  ANNULUS_GPU void PutHull(int slot, int32_t row, const SlotSpans& spans, int32_t end,
                           bool one) const {
    const bool sees = row >= 0;
    Put(kSlotRow, slot, row);
    Put(kSlotBegin, slot, sees ? spans.begin : INT_MAX);
    Put(kSlotEnd, slot, sees ? end : INT_MIN);
    Put(kSlotAllBegin, slot, !sees ? INT_MIN : one ? spans.begin : INT_MAX);
    Put(kSlotAllEnd, slot, !sees ? INT_MAX : one ? spans.end : INT_MIN);
  }

  ANNULUS_GPU void Advance(SlotSpans* spans) const {
    const auto span = tables.template Get<KeySpan32>(args.at.spans, spans->next++);
    spans->begin = span.begin;
    spans->end = span.end;
  }

  // What the job's ChangeRule needs of the slot. Of one that sees nothing it is not read.
  ANNULUS_GPU void FindChanges(int slot, int32_t row, int32_t head, bool sees) const {
    int32_t sequence = 0, sequence_row = 0, first_key = 0, position = 0;
    uint64_t bias = 0, bits = 0;
    float slope = 0, offset = 0;
    if (sees) {
      const int32_t q_row = tables.PackedRow(task.q_run, task.q_runs, row);
      const int32_t entry =
          tables.LastNotAbove(args.at.sequences, sizeof(SequenceAt), args.sequences, q_row);
      const auto found = tables.template Get<SequenceAt>(args.at.sequences, entry);
      sequence = found.number;
      sequence_row = q_row - found.q_begin;
      first_key = found.k_begin;
      const int64_t of_class = static_cast<int64_t>(entry) * args.classes +
                               tables.template Get<int32_t>(args.at.class_of_head, head);
      if (args.change.alibi) {
        slope = tables.template Get<float>(args.at.slopes, head);
        position =
            first_key + sequence_row + tables.template Get<int32_t>(args.at.shifts, of_class);
      }
      const ChangeRule& change = args.change;
      if (change.bias) {
        bias = Address(At(task.pairs, row, change.bias_per_head ? head : task.pairs.head_begin, 0,
                          change.bias_bytes));
      }
      if (change.bits && tables.template Get<int32_t>(args.at.has_bits, of_class) != 0) {
        bits = Address(At(task.pairs, row, change.bits_per_head ? head : task.pairs.head_begin,
                          task.bits_offset, change.bit_bytes));
      }
      if (change.offset)
        offset = gpu.template Load<float>(At(task.pairs, row, head, task.shift_offset, 4));
    }
    PutFloat(kSlotSlope, slot, slope);
    Put(kSlotPosition, slot, position);
    PutFloat(kSlotOffset, slot, offset);
    Put(kSlotFirstKey, slot, first_key);
    Put(kSlotSequence, slot, sequence);
    Put(kSlotSequenceRow, slot, sequence_row);
    gpu.template StoreShared<uint64_t>(SlotAt<CONFIG>(kSlotBias, 0) + slot * 8, bias);
    gpu.template StoreShared<uint64_t>(SlotAt<CONFIG>(kSlotBits, 0) + slot * 8, bits);
  }

  ANNULUS_GPU static uint64_t Address(const std::byte* at) {
    return reinterpret_cast<uint64_t>(at);
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_FORWARD_SLOTS_H_

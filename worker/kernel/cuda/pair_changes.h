#ifndef ANNULUS_WORKER_KERNEL_CUDA_PAIR_CHANGES_H_
#define ANNULUS_WORKER_KERNEL_CUDA_PAIR_CHANGES_H_

#include "worker/kernel/cuda/forward_config.h"
#include "worker/kernel/cuda/gpu_code.h"

namespace annulus::cuda {

// What a slot brings to a job's ChangeRule.
struct SlotChange {
  float slope, offset;
  int32_t position, first_key;
  uint64_t bias, bits;
};

// What a job's ChangeRule does to one score or weight. Slots are found (forward_slots.h); keys go
// by their packed rows.
template <class GPU, class CONFIG>
struct PairChanges {
  GPU& gpu;
  const ForwardArgs& args;

  ANNULUS_GPU int32_t Get(int field, int slot) const {
    return gpu.template LoadShared<int32_t>(SlotAt<CONFIG>(field, slot));
  }
  ANNULUS_GPU SlotChange ReadSlot(int slot) const {
    return {BitsAs<float>(Get(kSlotSlope, slot)),
            BitsAs<float>(Get(kSlotOffset, slot)),
            Get(kSlotPosition, slot),
            Get(kSlotFirstKey, slot),
            gpu.template LoadShared<uint64_t>(SlotAt<CONFIG>(kSlotBias, 0) + slot * 8),
            gpu.template LoadShared<uint64_t>(SlotAt<CONFIG>(kSlotBits, 0) + slot * 8)};
  }

  // False: the pair is hidden. `slope`: of the score by what it was.
  ANNULUS_GPU bool ChangeScore(const SlotChange& slot, int32_t key_row, float& score,
                               float& slope) const {
    const ChangeRule& change = args.change;
    const int64_t column = key_row - slot.first_key;
    slope = 1;
    if (slot.bits != 0) {
      const auto byte = gpu.template Load<uint8_t>(Pointer(slot.bits) + column / 8);
      if ((byte >> (column % 8) & 1) == 0) return false;
    }
    const float bias = slot.bias != 0 ? ReadBias(Pointer(slot.bias), column) : 0.0f;
    if (bias == -Infinity()) return false;
    score += slot.offset;
    if (change.cap != 0) {
      const float low = score * change.per_cap_low;
      const float t = Tanh<GPU>(GPU::Fma(score, change.per_cap_high, low));
      score = change.cap * t;
      slope = 1.0f - t * t;
    }
    if (change.alibi) {
      const int32_t apart = slot.position - key_row;
      score = GPU::Fma(-slot.slope, static_cast<float>(apart < 0 ? -apart : apart), score);
    }
    score += bias;
    return true;
  }

  // Words 1 to 3 of a slot's counters (attention/dropout.h).
  ANNULUS_GPU void Counters(int slot, uint32_t (&row)[3]) const {
    row[0] = static_cast<uint32_t>(Get(kSlotSequenceRow, slot));
    row[1] = static_cast<uint32_t>(Get(kSlotHead, slot)) + (uint32_t{1} << 31);
    row[2] = static_cast<uint32_t>(Get(kSlotSequence, slot));
  }
  // Whether dropout takes the weight of key `key` of the slot's sequence; `words` are those of
  // counter key / 4.
  ANNULUS_GPU bool Drops(const uint32_t (&words)[4], uint32_t key) const {
    const uint32_t low = (key & 1) != 0 ? words[1] : words[0];
    const uint32_t high = (key & 1) != 0 ? words[3] : words[2];
    return ((key & 2) != 0 ? high : low) < args.change.drop_below;
  }

 private:
  ANNULUS_GPU float ReadBias(const std::byte* row, int64_t column) const {
    if (args.change.bias_type == Element::kFp32) return gpu.template Load<float>(row + column * 4);
    const auto bits = gpu.template Load<uint16_t>(row + column * 2);
    return args.change.bias_type == Element::kBf16 ? GPU::template ToFloat<Element::kBf16>(bits)
                                                   : GPU::template ToFloat<Element::kFp16>(bits);
  }
  ANNULUS_GPU static const std::byte* Pointer(uint64_t address) {
    return reinterpret_cast<const std::byte*>(address);
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_PAIR_CHANGES_H_

#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM80_FORWARD_CONFIG_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM80_FORWARD_CONFIG_H_

#include <cstdint>

#include "worker/kernel/cuda/launch/forward_args.h"

namespace annulus::cuda {

// One instantiation of the forward kernel, and its shared-memory layout.
//
// A thread block has four warps of 16 slots. A warp holds scores and sums in the layout of mma.sync
// products of 16 × 8: lane 4·g + c has rows g and g + 8, columns 2·c and 2·c + 1. fp32, which no
// mma multiplies exactly, uses the same layout.
template <Element ELEMENT, int DIM, bool CHANGES>
struct ForwardConfig {
  static constexpr Element kElement = ELEMENT;
  static constexpr int kDim = DIM;
  static constexpr bool kChanges = CHANGES;
  static constexpr bool kWide = ELEMENT == Element::kFp32;
  static constexpr int kBytes = kWide ? 4 : 2;
  static constexpr int kKeys = DIM > 128 ? 32 : 64;  // Keys of a tile.
  static constexpr int kKeyTiles = kKeys / 8;
  static constexpr int kColumnTiles = DIM / 8;
  // Padded by sixteen bytes, so that eight rows of a matrix are in different banks.
  static constexpr int kRowBytes = DIM * kBytes + 16;
  static constexpr int kWeightBytes = kKeys * 4 + 16;  // fp32: a row of weights.

  static constexpr uint32_t kQueriesAt = 0;
  static constexpr uint32_t kKeysAt = kQueriesAt + kTileSlots * kRowBytes;
  static constexpr uint32_t kValuesAt = kKeysAt + kKeys * kRowBytes;
  static constexpr uint32_t kWeightsAt = kValuesAt + kKeys * kRowBytes;
  static constexpr uint32_t kMasksAt = kWeightsAt + (kWide ? kTileSlots * kWeightBytes : 0);
  static constexpr uint32_t kKeyRowsAt = kMasksAt + 2 * kTileSlots * 8;  // int32, for two tiles
  static constexpr uint32_t kNonfiniteAt = kKeyRowsAt + 2 * kKeys * 4;   // int32 per key
  static constexpr uint32_t kSharesAt = kNonfiniteAt + kKeys * 4;        // 8 bytes per slot
  static constexpr uint32_t kNextAt = kSharesAt + kTileSlots * 8;        // int32 of two warps
  static constexpr uint32_t kSlotsAt = kNextAt + 16;
  static constexpr int kSlotFields = CHANGES ? 16 : 6;  // 4 bytes each per slot
  static constexpr uint32_t kSharedBytes = kSlotsAt + kSlotFields * kTileSlots * 4;
};

// Calls `run` with the ForwardConfig for the kind, and returns its result.
template <Element ELEMENT, int DIM, class RUN>
auto WithConfigOf(bool changes, const RUN& run) {
  return changes ? run(ForwardConfig<ELEMENT, DIM, true>())
                 : run(ForwardConfig<ELEMENT, DIM, false>());
}
template <Element ELEMENT, class RUN>
auto WithConfigOf(const ForwardKind& kind, const RUN& run) {
  if (kind.dim == 64) return WithConfigOf<ELEMENT, 64>(kind.changes, run);
  if (kind.dim == 128) return WithConfigOf<ELEMENT, 128>(kind.changes, run);
  return WithConfigOf<ELEMENT, 256>(kind.changes, run);
}

// Shared memory of a thread block of a kind.
inline int64_t SharedBytesOf(const ForwardKind& kind) {
  const auto bytes = [](auto config) { return int64_t{decltype(config)::kSharedBytes}; };
  if (kind.element == Element::kFp32) return WithConfigOf<Element::kFp32>(kind, bytes);
  if (kind.element == Element::kFp16) return WithConfigOf<Element::kFp16>(kind, bytes);
  return WithConfigOf<Element::kBf16>(kind, bytes);
}

// The fields of a slot in shared memory.
enum SlotField : int {
  kSlotRow,    // −1: the slot sees no key of the task.
  kSlotHead,   // a query head
  kSlotBegin,  // The hull of its visible keys …
  kSlotEnd,
  kSlotAllBegin,  // … and an interval that it surely sees in full.
  kSlotAllEnd,
  // Set if the job has a ChangeRule:
  kSlotSlope,
  kSlotPosition,  // The packed key row at its position.
  kSlotOffset,
  kSlotFirstKey,  // The packed key row of its sequence's first key.
  kSlotSequence,
  kSlotSequenceRow,
  kSlotBias,  // Two fields: address of column 0; 0: none.
  kSlotBits = kSlotBias + 2,
};

template <class CONFIG>
constexpr uint32_t SlotAt(int field, int slot) {
  return CONFIG::kSlotsAt + static_cast<uint32_t>((field * kTileSlots + slot) * 4);
}

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM80_FORWARD_CONFIG_H_

#ifndef ANNULUS_WORKER_KERNEL_CUDA_HOPPER_CONFIG_H_
#define ANNULUS_WORKER_KERNEL_CUDA_HOPPER_CONFIG_H_

#include "worker/kernel/cuda/forward_args.h"
#include "worker/kernel/cuda/hopper_layout.h"

namespace annulus::cuda {

// The forward kernel for sm_90a: fp16 and bf16, no ChangeRule. A block has three groups of four
// warps: one thread of the first brings keys and values, the others have 64 slots each.

inline constexpr int kHopperSlots = 128;  // Of a tile.
inline constexpr int kHopperThreads = 384;
inline constexpr int kGroupThreads = 128;
inline constexpr int kGroupSlots = 64;
inline constexpr int kConsumerWarps = 8;
// Registers of a thread, once the block has started.
inline constexpr int kProducerRegisters = 24;
inline constexpr int kConsumerRegisters = 240;
// What the block starts with, as ptxas deals a multiprocessor's out to its threads: the groups can
// only take what it has.
inline constexpr int kStartRegisters = 168;
static_assert(kGroupThreads * (kProducerRegisters + 2 * kConsumerRegisters) ==
              kHopperThreads * kStartRegisters);

// Keys of a tile, as registers allow. A tile of key/value head h is loaded by what EncodeMaps made
// of a task's maps.
constexpr int HopperKeys(int dim) { return dim > 128 ? 64 : dim > 64 ? 96 : 128; }
inline constexpr int64_t kMapBytes = 128;  // Of a CUtensorMap.
inline constexpr int kMapsOfTask = 2;      // Keys, values.

// The barriers of a stage.
enum HopperBarrier : int { kKeysCame, kKeysRead, kValuesCame, kValuesRead, kHopperBarriers };

template <Element ELEMENT, int DIM>
struct HopperConfig {
  static constexpr Element kElement = ELEMENT;
  static constexpr int kDim = DIM;
  static constexpr int kKeys = HopperKeys(DIM);
  static constexpr int kPanels = DIM / kPanelColumns;
  static constexpr int kStages = DIM > 128 ? 2 : DIM > 64 ? 3 : 4;
  // Whether products run ahead of the softmax (hopper_ahead.h), as registers allow.
  static constexpr bool kAhead = DIM <= 128;
  // Columns of values that are multiplied at once, as registers allow, and how often.
  static constexpr int kPart = DIM > 128 ? 64 : DIM;
  static constexpr int kParts = DIM / kPart;

  static constexpr uint32_t kQueryPanelBytes = kGroupSlots * kPanelRowBytes;
  static constexpr uint32_t kKeyPanelBytes = kKeys * kPanelRowBytes;
  static constexpr uint32_t kTileBytes = kPanels * kKeyPanelBytes;
  static constexpr uint32_t kQueriesAt = 0;  // Of each consumer group.
  static constexpr uint32_t kKeysAt = kQueriesAt + 2 * kPanels * kQueryPanelBytes;
  static constexpr uint32_t kValuesAt = kKeysAt + kStages * kTileBytes;
  static constexpr uint32_t kSharesAt = kValuesAt + kStages * kTileBytes;  // 8 bytes of a slot
  static constexpr uint32_t kBarriersAt = kSharesAt + kHopperSlots * 8;
  static constexpr uint32_t kSharedBytes = kBarriersAt + kHopperBarriers * kStages * 8;
  static_assert(kKeyPanelBytes % kSwizzleBytes == 0 && kQueryPanelBytes % kSwizzleBytes == 0);

  ANNULUS_GPU static uint32_t BarrierAt(HopperBarrier barrier, int stage) {
    return kBarriersAt + (barrier * kStages + stage) * 8;
  }
  ANNULUS_GPU static uint32_t KeysAt(int stage) { return kKeysAt + stage * kTileBytes; }
  ANNULUS_GPU static uint32_t ValuesAt(int stage) { return kValuesAt + stage * kTileBytes; }
};

// The next of a ring's stages, and how often all were used, modulo 2.
template <class CONFIG>
struct HopperStage {
  int stage = 0;
  uint32_t parity = 0;

  ANNULUS_GPU void Next() {
    if (++stage < CONFIG::kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

// Calls `run` with the HopperConfig that is meant, and returns what it does.
template <Element ELEMENT, class RUN>
auto WithHopperConfigOf(int dim, const RUN& run) {
  if (dim == 64) return run(HopperConfig<ELEMENT, 64>());
  if (dim == 128) return run(HopperConfig<ELEMENT, 128>());
  return run(HopperConfig<ELEMENT, 256>());
}

// Shared memory that a block takes: no type takes more than another.
inline int64_t HopperSharedBytes(int dim) {
  return WithHopperConfigOf<Element::kBf16>(
      dim, [](auto config) { return int64_t{decltype(config)::kSharedBytes}; });
}

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_HOPPER_CONFIG_H_

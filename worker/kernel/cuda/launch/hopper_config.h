#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_HOPPER_CONFIG_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_HOPPER_CONFIG_H_

#include "worker/kernel/cuda/launch/forward_args.h"
#include "worker/kernel/cuda/launch/hopper_layout.h"

namespace annulus::cuda {

// The forward kernel for sm_90a: fp16 and bf16, no ChangeRule. A thread block has three warp
// groups. The first is the producer: it loads items, keys, values and queries. The other two are
// consumers, with 64 slots each.

inline constexpr int kHopperSlots = 128;  // Slots of a tile.
inline constexpr int kHopperThreads = 384;
inline constexpr int kGroupThreads = 128;
inline constexpr int kGroupSlots = 64;
inline constexpr int kConsumerWarps = 8;
inline constexpr int kQueryThreads = 96;  // Producer threads that load queries.
// Registers of a thread, once the block has started.
inline constexpr int kProducerRegisters = 40;
inline constexpr int kConsumerRegisters = 232;
// Registers at the start of the block, as ptxas divides those of a multiprocessor among its
// threads. The warp groups can only redistribute these.
inline constexpr int kStartRegisters = 168;
static_assert(kGroupThreads * (kProducerRegisters + 2 * kConsumerRegisters) ==
              kHopperThreads * kStartRegisters);

// Keys of a tile, limited by registers. A tile of key/value head h is loaded through the task's
// encoded tensor maps (EncodeMaps).
constexpr int HopperKeys(int dim) { return dim > 128 ? 64 : dim > 64 ? 96 : 128; }
inline constexpr int64_t kMapBytes = 128;  // Bytes of a CUtensorMap.
inline constexpr int kMapsOfTask = 2;      // Keys, values.

// The barriers of a stage of each ring.
enum HopperBarrier : int {
  kKeysCame,
  kKeysRead,
  kValuesCame,
  kValuesRead,
  kItemCame,
  kItemRead,
  kQueriesCame,
  kQueriesRead,
  kHopperBarriers
};
inline constexpr int kItemStages = 2;

// The next stage of a ring, and the parity of the number of full rounds: one register.
template <int STAGES>
struct HopperStage {
  uint32_t state = 0;

  ANNULUS_GPU int stage() const { return static_cast<int>(state & 0xff); }
  ANNULUS_GPU uint32_t parity() const { return state >> 8; }
  ANNULUS_GPU void Next() { state = stage() + 1 < STAGES ? state + 1 : (parity() ^ 1) << 8; }
};

template <Element ELEMENT, int DIM>
struct HopperConfig {
  static constexpr Element kElement = ELEMENT;
  static constexpr int kDim = DIM;
  static constexpr int kKeys = HopperKeys(DIM);
  static constexpr int kPanels = DIM / kPanelColumns;
  // Stages of keys and values, and of queries, limited by shared memory.
  static constexpr int kStages = DIM > 128 ? 2 : DIM > 64 ? 3 : 4;
  static constexpr int kQueryStages = DIM > 128 ? 1 : 2;
  using Ring = HopperStage<kStages>;
  using QueryRing = HopperStage<kQueryStages>;
  using ItemRing = HopperStage<kItemStages>;
  // True if products run ahead of the softmax (hopper_mainloop-inl.h), as registers allow.
  static constexpr bool kAhead = DIM <= 128;
  // Columns of values that are multiplied at once, limited by registers, and the number of such
  // parts.
  static constexpr int kPart = DIM > 128 ? 64 : DIM;
  static constexpr int kParts = DIM / kPart;

  static constexpr uint32_t kQueryPanelBytes = kGroupSlots * kPanelRowBytes;
  static constexpr uint32_t kKeyPanelBytes = kKeys * kPanelRowBytes;
  static constexpr uint32_t kTileBytes = kPanels * kKeyPanelBytes;
  static constexpr uint32_t kQueryBytes = kPanels * kQueryPanelBytes;  // Per consumer group.
  static constexpr uint32_t kQueriesAt = 0;
  static constexpr uint32_t kKeysAt = kQueriesAt + kQueryStages * 2 * kQueryBytes;
  static constexpr uint32_t kValuesAt = kKeysAt + kStages * kTileBytes;
  static constexpr uint32_t kSharesAt = kValuesAt + kStages * kTileBytes;  // 8 bytes per slot
  static constexpr uint32_t kBarriersAt = kSharesAt + kHopperSlots * 8;
  static constexpr uint32_t kItemsAt = kBarriersAt + kHopperBarriers * kStages * 8;
  static constexpr uint32_t kSharedBytes = kItemsAt + kItemStages * 4;
  static_assert(kStages >= kItemStages && kStages >= kQueryStages, "barriers have kStages places");
  static_assert(kKeyPanelBytes % kSwizzleBytes == 0 && kQueryPanelBytes % kSwizzleBytes == 0);

  ANNULUS_GPU static uint32_t BarrierAt(HopperBarrier barrier, int stage) {
    return kBarriersAt + (barrier * kStages + stage) * 8;
  }
  ANNULUS_GPU static uint32_t ItemAt(int stage) { return kItemsAt + stage * 4; }
  ANNULUS_GPU static uint32_t QueriesAt(int stage, int group) {
    return kQueriesAt + (stage * 2 + group) * kQueryBytes;
  }
  ANNULUS_GPU static uint32_t KeysAt(int stage) { return kKeysAt + stage * kTileBytes; }
  ANNULUS_GPU static uint32_t ValuesAt(int stage) { return kValuesAt + stage * kTileBytes; }
};

// Calls `run` with the HopperConfig for `dim`, and returns its result.
template <Element ELEMENT, class RUN>
auto WithHopperConfigOf(int dim, const RUN& run) {
  if (dim == 64) return run(HopperConfig<ELEMENT, 64>());
  if (dim == 128) return run(HopperConfig<ELEMENT, 128>());
  return run(HopperConfig<ELEMENT, 256>());
}

// Shared memory of a thread block; the same for all types.
inline int64_t HopperSharedBytes(int dim) {
  return WithHopperConfigOf<Element::kBf16>(
      dim, [](auto config) { return int64_t{decltype(config)::kSharedBytes}; });
}

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_HOPPER_CONFIG_H_

#ifndef ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_HOPPER_CONFIG_H_
#define ANNULUS_WORKER_KERNEL_CUDA_LAUNCH_HOPPER_CONFIG_H_

#include <cstdint>

#include "worker/kernel/cuda/launch/forward_args.h"
#include "worker/kernel/cuda/launch/gpu_code.h"

namespace annulus::cuda {

// The forward kernel for sm_90a: fp16 and bf16, no ChangeRule. A thread block has three warp
// groups. The first is the producer: it loads items, keys, values and queries. The other two are
// consumers, with 64 slots each.

// Shared-memory layout for TMA and wgmma. A tile consists of panels. A panel has rows of 64 16-bit
// elements, 128 bytes each, contiguous, with 128-byte swizzle. It begins at a multiple of 1024.

inline constexpr int kPanelColumns = 64;
inline constexpr uint32_t kPanelRowBytes = 128;
inline constexpr uint32_t kSwizzleBytes = 1024;  // The period of the swizzle.

// The swizzle: exchanges the sixteen-byte pieces of a row by the row's number in its group of
// eight.
ANNULUS_GPU uint32_t Swizzle128(uint32_t at) { return at ^ (at >> 7 & 7) << 4; }

// A wgmma matrix descriptor: address, leading and stride offset in units of 16 bytes, and the
// 128-byte swizzle (PTX ISA, "Matrix Descriptor Format"). All of shared memory is below 2^18, so an
// address fits in its 14 bits. The upper half is a constant, so additions need the lower half only.
ANNULUS_GPU uint64_t MatrixDescriptor(uint32_t at, uint32_t leading_bytes, uint32_t stride_bytes) {
  constexpr uint64_t kSwizzle = uint64_t{1} << 62;
  const uint32_t low = (leading_bytes >> 4 << 16) + (at >> 4);
  return kSwizzle | uint64_t{stride_bytes >> 4} << 32 | low;
}
// The descriptor for an address `bytes` further.
ANNULUS_GPU uint64_t Further(uint64_t descriptor, uint32_t bytes) {
  const uint64_t low = static_cast<uint32_t>(descriptor) + (bytes >> 4);
  return descriptor >> 32 << 32 | low;
}

// Queries or keys, whose rows run along the sum: column `column`, a multiple of 16, of panels of
// `panel_bytes` that begin at `at`. Groups of eight rows are kSwizzleBytes apart.
ANNULUS_GPU uint64_t AlongRows(uint32_t at, uint32_t panel_bytes, int column) {
  const uint32_t further = column / kPanelColumns * panel_bytes + column % kPanelColumns * 2;
  return Further(MatrixDescriptor(at, 16, kSwizzleBytes), further);  // Leading bytes: not used.
}

// Values, whose columns run along the sum: rows from `row`, a multiple of 16, on. Groups of 64
// columns are panel_bytes apart.
ANNULUS_GPU uint64_t AcrossRows(uint32_t at, uint32_t panel_bytes, int row) {
  return Further(MatrixDescriptor(at, panel_bytes, kSwizzleBytes), row * kPanelRowBytes);
}

// A thread has scores of a row for keys 8·j + first + c, with c in {0, 1} and j from 0 on: bit 2·j
// + c of a word. Returns the number of these keys below `key`: 0 … 32.
ANNULUS_GPU int CountBelow(int32_t key, int first) {
  const int32_t from_first = key - first;
  if (from_first <= 0) return 0;
  return Least(32, from_first / 8 * 2 + Least(from_first % 8, 2));
}
// The bits of keys [begin, end).
ANNULUS_GPU uint32_t KeyBits(int32_t begin, int32_t end, int first) {
  const uint64_t low = (uint64_t{1} << CountBelow(begin, first)) - 1;
  const uint64_t high = (uint64_t{1} << CountBelow(end, first)) - 1;
  return static_cast<uint32_t>(high & ~low);
}

// Sizes of the kernel.

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

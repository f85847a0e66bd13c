#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_GRADIENT_CONFIG_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_GRADIENT_CONFIG_H_

#include "worker/kernel/cuda/launch/gradient_args.h"
#include "worker/kernel/cuda/launch/hopper_config.h"

namespace annulus::cuda {

// The gradient kernel for sm_90a: fp16 and bf16 of up to 128 dimensions, no ChangeRule. A thread
// block owns one side, queries or keys, and streams the other past, as in GradientConfig. `First`
// inputs make scores, `second` inputs make the gradients of weights. A block has three warp groups.
// The first is the producer: it loads the streamed tiles. The other two are consumers, with 64 own
// rows each.

inline constexpr int kMaxGradientDim = 128;
inline constexpr int kOwnRows = 128;  // Own rows of a block: query slots, or keys.
static_assert(kOwnRows == kHopperSlots && kOwnRows == 2 * kGroupSlots);
// Rows of a streamed tile, limited by registers beside one sum or two.
constexpr int HopperOthers(int dim, bool of_queries) {
  return of_queries ? 128 : dim <= 64 ? 96 : 64;
}
// Registers of a thread, once the block has started. The producer computes more than in the forward
// kernel.
inline constexpr int kGradientProducerRegisters = 56;
inline constexpr int kGradientConsumerRegisters = 224;
static_assert(kGroupThreads * (kGradientProducerRegisters + 2 * kGradientConsumerRegisters) ==
              kHopperThreads * kStartRegisters);
// Query rows of a streamed tile of query slots: whole rows, each with the slots of its group.
ANNULUS_GPU constexpr int RowsThatComeBy(int others, int group) { return others / group; }

// The barriers of a stage.
enum GradientBarrier : int { kOthersCame, kOthersRead, kGradientBarriers };
inline constexpr int kInfoWarps = 3;  // Producer warps that write the data of streamed slots.

template <Element ELEMENT, int DIM, GradientSide SIDE>
struct HopperGradientConfig {
  static constexpr Element kElement = ELEMENT;
  static constexpr int kDim = DIM;
  static constexpr bool kOfQueries = SIDE == GradientSide::kQueries;
  static constexpr int kPanels = DIM / kPanelColumns;
  static constexpr int kOthers = HopperOthers(DIM, kOfQueries);
  static constexpr int kScores = kOthers / 2, kSteps = kOthers / 16, kSums = DIM / 2;
  // Columns that are multiplied at once, limited by registers, and the number of such parts.
  static constexpr int kPart = kOfQueries ? DIM : kPanelColumns;
  static constexpr int kParts = DIM / kPart;
  static constexpr int kStages = kOfQueries && DIM > 64 ? 2 : 4;
  using Ring = HopperStage<kStages>;

  // The streamed tile, by the names of HopperConfig.
  static constexpr int kKeys = kOthers;
  static constexpr uint32_t kKeyPanelBytes = kOthers * kPanelRowBytes;
  static constexpr uint32_t kTileBytes = kPanels * kKeyPanelBytes;

  static constexpr uint32_t kOwnPanelBytes = kOwnRows * kPanelRowBytes;
  static constexpr uint32_t kOwnBytes = kPanels * kOwnPanelBytes;
  static constexpr uint32_t kOthersAt = 2 * kOwnBytes;
  static constexpr uint32_t kSharesAt = kOthersAt + kStages * 2 * kTileBytes;
  // The data of streamed slots: the LSE in two numbers, delta, and one bit for each of the block's
  // keys that the slot sees. Each warp that writes them adds a word: whether some slot of its does
  // not see all keys.
  static constexpr uint32_t kInfoAt = kSharesAt + kOwnRows * 8;
  static constexpr uint32_t kMaskBytes = kOwnRows / 8;
  static constexpr uint32_t kInfoBytes = kOfQueries ? 0 : kOthers * (12 + kMaskBytes) + 16;
  static constexpr uint32_t kBarriersAt = kInfoAt + kStages * kInfoBytes;
  static constexpr uint32_t kSharedBytes = kBarriersAt + kGradientBarriers * kStages * 8;
  static_assert(kKeyPanelBytes % kSwizzleBytes == 0 && kOwnPanelBytes % kSwizzleBytes == 0);
  static_assert(kInfoBytes % 16 == 0 && kInfoAt % 16 == 0);

  ANNULUS_GPU static uint32_t BarrierAt(GradientBarrier barrier, int stage) {
    return kBarriersAt + (barrier * kStages + stage) * 8;
  }
  // The own rows of a consumer group.
  ANNULUS_GPU static uint32_t OwnAt(bool second, int group) {
    return (second ? kOwnBytes : 0) + group * (kGroupSlots * kPanelRowBytes);
  }
  ANNULUS_GPU static uint32_t OthersAt(bool second, int stage) {
    return kOthersAt + (2 * stage + (second ? 1 : 0)) * kTileBytes;
  }
  ANNULUS_GPU static uint32_t MasksAt(int stage) { return kInfoAt + stage * kInfoBytes; }
  ANNULUS_GPU static uint32_t LseAt(int stage) { return MasksAt(stage) + kOthers * kMaskBytes; }
  ANNULUS_GPU static uint32_t LseRestAt(int stage) { return LseAt(stage) + kOthers * 4; }
  ANNULUS_GPU static uint32_t DeltaAt(int stage) { return LseRestAt(stage) + kOthers * 4; }
  ANNULUS_GPU static uint32_t MaskedAt(int stage) { return DeltaAt(stage) + kOthers * 4; }
};

// Calls `run` with the HopperGradientConfig for the kind, and returns its result.
template <Element ELEMENT, class RUN>
auto WithHopperGradientConfigOf(const GradientKind& kind, const RUN& run) {
  const bool queries = kind.side == GradientSide::kQueries;
  if (kind.forward.dim == 64) {
    return queries ? run(HopperGradientConfig<ELEMENT, 64, GradientSide::kQueries>())
                   : run(HopperGradientConfig<ELEMENT, 64, GradientSide::kKeysAndValues>());
  }
  return queries ? run(HopperGradientConfig<ELEMENT, 128, GradientSide::kQueries>())
                 : run(HopperGradientConfig<ELEMENT, 128, GradientSide::kKeysAndValues>());
}

// Shared memory of a thread block; the same for all types.
inline int64_t HopperGradientSharedBytes(const GradientKind& kind) {
  return WithHopperGradientConfigOf<Element::kBf16>(
      kind, [](auto config) { return int64_t{decltype(config)::kSharedBytes}; });
}

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_GRADIENT_CONFIG_H_

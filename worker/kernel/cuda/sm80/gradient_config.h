#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM80_GRADIENT_CONFIG_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM80_GRADIENT_CONFIG_H_

#include "worker/kernel/cuda/launch/gradient_args.h"
#include "worker/kernel/cuda/sm80/forward_config.h"

namespace annulus::cuda {

constexpr int PartRows(Element element, int dim, bool of_queries) {
  if (!of_queries && dim == 128) return 16;  // Two sums take the registers.
  if (element == Element::kFp32) return dim > 128 ? 16 : 32;
  return of_queries && dim <= 128 ? 64 : 32;
}

// One instantiation of the gradient kernel, and its shared-memory layout.
//
// A thread block owns one side, queries or keys: its own tile of 64 rows (16 per warp) stays in
// shared memory, and its sums in registers. The other side is streamed past, tile by tile, and each
// tile part by part. `First` inputs make scores (queries, keys); `second` inputs make the gradients
// of weights (dO, values).
template <Element ELEMENT, int DIM, bool CHANGES, GradientSide SIDE>
struct GradientConfig {
  static constexpr Element kElement = ELEMENT;
  static constexpr int kDim = DIM;
  static constexpr bool kChanges = CHANGES;
  static constexpr GradientSide kSide = SIDE;
  static constexpr bool kOfQueries = SIDE == GradientSide::kQueries;
  static constexpr bool kHasKeys =
      SIDE == GradientSide::kKeysAndValues || SIDE == GradientSide::kKeys;
  static constexpr bool kHasValues =
      SIDE == GradientSide::kKeysAndValues || SIDE == GradientSide::kValues;
  static constexpr bool kWide = ELEMENT == Element::kFp32;
  static constexpr int kBytes = kWide ? 4 : 2;
  static constexpr int kKeys = kTileKeys;
  // Rows of a part: as many as leave room in registers for its scores beside the sums.
  static constexpr int kPart = PartRows(ELEMENT, DIM, kOfQueries);
  static constexpr int kPartTiles = kPart / 8;
  static constexpr int kColumnTiles = DIM / 8;
  static constexpr int kRowBytes = DIM * kBytes + 16;  // See ForwardConfig.
  static constexpr int kWeightBytes = kPart * 4 + 16;  // A row of weights, or of dBias.
  // The two inputs of a part share one buffer.
  static constexpr bool kOneBuffer = kWide && DIM > 128;

  static constexpr uint32_t kOwnFirstAt = 0;
  static constexpr uint32_t kOwnSecondAt = kOwnFirstAt + kTileSlots * kRowBytes;
  static constexpr uint32_t kFirstAt = kOwnSecondAt + kTileSlots * kRowBytes;
  static constexpr uint32_t kSecondAt = kFirstAt + (kOneBuffer ? 0 : kPart * kRowBytes);
  static constexpr uint32_t kWeightsAt = kSecondAt + kPart * kRowBytes;
  static constexpr uint32_t kMasksAt =
      kWeightsAt + (kWide || CHANGES ? kTileSlots * kWeightBytes : 0);
  static constexpr uint32_t kKeyRowsAt = kMasksAt + 2 * kTileSlots * 8;  // int32, for two tiles
  static constexpr uint32_t kNonfiniteAt = kKeyRowsAt + 2 * kKeys * 4;   // int32 per row of a part
  static constexpr uint32_t kSharesAt = kNonfiniteAt + kTileSlots * 4;   // 8 bytes per own row
  static constexpr uint32_t kNextAt = kSharesAt + kTileSlots * 8;        // int32 of two warps
  static constexpr uint32_t kLseAt = kNextAt + 16;                       // float per slot
  static constexpr uint32_t kLseRestAt = kLseAt + kTileSlots * 4;  // the LSE's rest, times log2(e)
  static constexpr uint32_t kDeltaAt = kLseRestAt + kTileSlots * 4;
  static constexpr uint32_t kSlotsAt = kDeltaAt + kTileSlots * 4;
  static constexpr int kSlotFields = CHANGES ? 16 : 6;
  static constexpr uint32_t kSharedBytes = kSlotsAt + kSlotFields * kTileSlots * 4;
};

// The view of the attention products: own rows are their queries, a part's rows their keys and
// values.
template <class CONFIG, uint32_t OWN_AT, uint32_t PART_AT>
struct ProductView {
  static constexpr Element kElement = CONFIG::kElement;
  static constexpr int kKeys = CONFIG::kPart;
  static constexpr int kKeyTiles = CONFIG::kPartTiles, kColumnTiles = CONFIG::kColumnTiles;
  static constexpr int kRowBytes = CONFIG::kRowBytes, kWeightBytes = CONFIG::kWeightBytes;
  static constexpr uint32_t kQueriesAt = OWN_AT, kKeysAt = PART_AT, kValuesAt = PART_AT;
  static constexpr uint32_t kWeightsAt = CONFIG::kWeightsAt;
};

// Calls `run` with the GradientConfig for the kind, and returns its result. dK and dV have separate
// launches above 128 dimensions, otherwise one together.
template <Element ELEMENT, int DIM, GradientSide SIDE, class RUN>
auto WithGradientConfigOf(bool changes, const RUN& run) {
  return changes ? run(GradientConfig<ELEMENT, DIM, true, SIDE>())
                 : run(GradientConfig<ELEMENT, DIM, false, SIDE>());
}
template <Element ELEMENT, class RUN>
auto WithKeySideOf(const GradientKind& kind, const RUN& run) {
  const bool changes = kind.forward.changes;
  if (kind.forward.dim == 64)
    return WithGradientConfigOf<ELEMENT, 64, GradientSide::kKeysAndValues>(changes, run);
  if (kind.forward.dim == 128)
    return WithGradientConfigOf<ELEMENT, 128, GradientSide::kKeysAndValues>(changes, run);
  if (kind.side == GradientSide::kKeys)
    return WithGradientConfigOf<ELEMENT, 256, GradientSide::kKeys>(changes, run);
  return WithGradientConfigOf<ELEMENT, 256, GradientSide::kValues>(changes, run);
}
template <Element ELEMENT, class RUN>
auto WithQuerySideOf(const GradientKind& kind, const RUN& run) {
  const bool changes = kind.forward.changes;
  if (kind.forward.dim == 64)
    return WithGradientConfigOf<ELEMENT, 64, GradientSide::kQueries>(changes, run);
  if (kind.forward.dim == 128)
    return WithGradientConfigOf<ELEMENT, 128, GradientSide::kQueries>(changes, run);
  return WithGradientConfigOf<ELEMENT, 256, GradientSide::kQueries>(changes, run);
}
template <Element ELEMENT, class RUN>
auto WithGradientConfigOf(const GradientKind& kind, const RUN& run) {
  return kind.side == GradientSide::kQueries ? WithQuerySideOf<ELEMENT>(kind, run)
                                             : WithKeySideOf<ELEMENT>(kind, run);
}

// Shared memory of a thread block of a kind.
inline int64_t SharedBytesOf(const GradientKind& kind) {
  const auto bytes = [](auto config) { return int64_t{decltype(config)::kSharedBytes}; };
  if (kind.forward.element == Element::kFp32)
    return WithGradientConfigOf<Element::kFp32>(kind, bytes);
  if (kind.forward.element == Element::kFp16)
    return WithGradientConfigOf<Element::kFp16>(kind, bytes);
  return WithGradientConfigOf<Element::kBf16>(kind, bytes);
}

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM80_GRADIENT_CONFIG_H_

#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM80_GRADIENT_CONFIG_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM80_GRADIENT_CONFIG_H_

#include "worker/kernel/cuda/launch/gradient_args.h"
#include "worker/kernel/cuda/sm80/forward_config.h"

namespace annulus::cuda {

constexpr int PartRows(Element element, int dim, bool of_queries) {
  if (!of_queries && dim == 128) return 16;  // Of two sums.
  if (element == Element::kFp32) return dim > 128 ? 16 : 32;
  return of_queries && dim <= 128 ? 64 : 32;
}

// One instantiation of the gradients' kernel, and where things lie in its shared memory.
//
// Of queries against keys, one is a block's own: its tile of 64 rows (16 of each warp) stays, with
// the sums. The other comes by, tile by tile, and of a tile part by part. `First` is what scores
// are made of (queries, keys), `second` what weights' gradients are made of (dO, values).
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
  // Rows of a part: as many as leave its scores in registers, beside the sums.
  static constexpr int kPart = PartRows(ELEMENT, DIM, kOfQueries);
  static constexpr int kPartTiles = kPart / 8;
  static constexpr int kColumnTiles = DIM / 8;
  static constexpr int kRowBytes = DIM * kBytes + 16;     // As in ForwardConfig.
  static constexpr int kWeightBytes = kPart * 4 + 16;     // A row of weights, or of dBias.
  static constexpr bool kOneBuffer = kWide && DIM > 128;  // A part's two inputs take turns.

  static constexpr uint32_t kOwnFirstAt = 0;
  static constexpr uint32_t kOwnSecondAt = kOwnFirstAt + kTileSlots * kRowBytes;
  static constexpr uint32_t kFirstAt = kOwnSecondAt + kTileSlots * kRowBytes;
  static constexpr uint32_t kSecondAt = kFirstAt + (kOneBuffer ? 0 : kPart * kRowBytes);
  static constexpr uint32_t kWeightsAt = kSecondAt + kPart * kRowBytes;
  static constexpr uint32_t kMasksAt =
      kWeightsAt + (kWide || CHANGES ? kTileSlots * kWeightBytes : 0);
  static constexpr uint32_t kKeyRowsAt = kMasksAt + 2 * kTileSlots * 8;  // int32, two tiles'
  static constexpr uint32_t kNonfiniteAt = kKeyRowsAt + 2 * kKeys * 4;   // int32 of a part's rows
  static constexpr uint32_t kSharesAt = kNonfiniteAt + kTileSlots * 4;   // 8 bytes of each own row
  static constexpr uint32_t kNextAt = kSharesAt + kTileSlots * 8;        // int32 of two warps
  static constexpr uint32_t kLseAt = kNextAt + 16;                       // float of each slot
  static constexpr uint32_t kLseRestAt = kLseAt + kTileSlots * 4;        // its rest, times log2(e)
  static constexpr uint32_t kDeltaAt = kLseRestAt + kTileSlots * 4;
  static constexpr uint32_t kSlotsAt = kDeltaAt + kTileSlots * 4;
  static constexpr int kSlotFields = CHANGES ? 16 : 6;
  static constexpr uint32_t kSharedBytes = kSlotsAt + kSlotFields * kTileSlots * 4;
};

// As the products of attention want it: own rows are its queries, a part's its keys and values.
template <class CONFIG, uint32_t OWN_AT, uint32_t PART_AT>
struct ProductView {
  static constexpr Element kElement = CONFIG::kElement;
  static constexpr int kKeys = CONFIG::kPart;
  static constexpr int kKeyTiles = CONFIG::kPartTiles, kColumnTiles = CONFIG::kColumnTiles;
  static constexpr int kRowBytes = CONFIG::kRowBytes, kWeightBytes = CONFIG::kWeightBytes;
  static constexpr uint32_t kQueriesAt = OWN_AT, kKeysAt = PART_AT, kValuesAt = PART_AT;
  static constexpr uint32_t kWeightsAt = CONFIG::kWeightsAt;
};

// Calls `run` with the GradientConfig that is meant, and returns what it does. dK and dV have a
// launch of their own each above 128 dimensions, and one together else.
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

// Shared memory that a block of a kind takes.
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

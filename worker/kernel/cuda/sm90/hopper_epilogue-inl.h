#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_EPILOGUE_INL_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_EPILOGUE_INL_H_

#include "worker/kernel/cuda/launch/hopper_config.h"
#include "worker/kernel/cuda/sm90/hopper_softmax-inl.h"

// Loads and stores of running state, and values with NaN or infinity under a mask, for the kernels
// for sm_90a. Included by hopper_block-inl.h and hopper_gradient_block-inl.h. Start at
// HopperStateRows and HopperNonfiniteValues.
namespace annulus::cuda {

// The accumulator rows of a thread's slots, in a task's block (BlockKind::kPartial).
template <class GPU, class CONFIG>
struct HopperStateRows {
  using State = HopperState<GPU, CONFIG>;
  using Slots = HopperSlots<GPU, CONFIG>;

  GPU& gpu;
  const ForwardArgs& args;
  const ForwardTask& task;

  // Loads the state. A slot that sees no key of the task gets an empty state, which is not used.
  ANNULUS_GPU void Load(const Slots& slots, State& state) const {
    const std::byte* sums[2];
    state.sees = 0;
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) {
      const HopperSlot slot = slots.Find(task, half);
      const bool sees = slot.row >= 0;
      state.sees |= (sees ? 1u : 0u) << half;
      state.max[half] =
          sees ? gpu.template Load<float>(Number(slot, task.max_offset)) : -Infinity();
      state.weight[half] = sees ? gpu.template Load<float>(Number(slot, task.weight_offset)) : 0;
      sums[half] = Sums(slot);
    }
    const bool fresh[2] = {state.max[0] == -Infinity(), state.max[1] == -Infinity()};
    float same[2];
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) {
      const float natural = state.max[half];
      state.max[half] = PowerOf2(natural);
      same[half] = Same(natural, state.max[half]);
      state.weight[half] *= same[half];
    }
    ANNULUS_UNROLL
    for (int i = 0; i < CONFIG::kDim / 4; ++i) {
      const int j = i / 2, half = i % 2;
      TwoFloats two = {{0, 0}};  // The sums of a fresh slot are undefined.
      if (!fresh[half] && j * 8 < args.value_dim)
        two = gpu.template Load<TwoFloats>(sums[half] + j * 32);
      state.sums[4 * j + 2 * half] = two.value[0] * same[half];
      state.sums[4 * j + 2 * half + 1] = two.value[1] * same[half];
    }
  }

  ANNULUS_GPU void Store(const Slots& slots, const State& state) const {
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) {
      if ((state.sees >> half & 1) == 0) continue;
      const auto place = slots.PlaceOfThread(task, half);
      const float natural = state.max[half] * kLn2;
      const float same = 1.0f / Same(natural, state.max[half]);
      if (gpu.Thread() % 4 == 0) {
        gpu.template Store<float>(Number(place, task.max_offset), natural);
        gpu.template Store<float>(Number(place, task.weight_offset), state.weight[half] * same);
      }
      std::byte* sums = Sums(place);
      ANNULUS_UNROLL
      for (int j = 0; j < CONFIG::kDim / 8; ++j) {
        const TwoFloats two = {
            {state.sums[4 * j + 2 * half] * same, state.sums[4 * j + 2 * half + 1] * same}};
        if (j * 8 < args.value_dim) gpu.template Store<TwoFloats>(sums + j * 32, two);
      }
    }
  }

 private:
  static constexpr float kLn2 = 0.693147180559945309417f;

  // The maximum as a power of 2. A finite maximum stays finite: a slot that has seen keys must
  // differ from one that has seen none.
  ANNULUS_GPU static float PowerOf2(float natural) {
    const float power = natural * kLog2e;
    return power == -Infinity() && natural != -Infinity() ? LowestFloat() : power;
  }
  // e^natural / 2^power, for two powers that differ only by rounding: converts sums relative to one
  // to sums relative to the other.
  ANNULUS_GPU static float Same(float natural, float power) {
    constexpr float kLog2eRest = 1.92596299e-8f;  // log2(e) − kLog2e.
    const float rest = GPU::Fma(natural, kLog2eRest, GPU::Fma(natural, kLog2e, -power));
    return rest > -0.5f && rest < 0.5f ? Exp2<GPU>(rest) : 1.0f;
  }

  template <class PLACE>
  ANNULUS_GPU std::byte* Number(const PLACE& place, int64_t offset) const {
    return At(task.out, place.row, place.head, offset, 4);
  }
  // The address of the thread's first columns: the others follow at a distance of 8 columns.
  template <class PLACE>
  ANNULUS_GPU std::byte* Sums(const PLACE& place) const {
    return At(task.out, place.row, place.head, gpu.Thread() % 4 * 8, int64_t{args.value_dim} * 4);
  }
};

// A tile of values with infinity or NaN that some slots see only in part. A weight of 0 would not
// keep such a value out of a product, so the tile is multiplied number by number.
template <class GPU, class CONFIG>
struct HopperNonfiniteValues {
  static constexpr int kSteps = CONFIG::kKeys / 16, kSums = CONFIG::kDim / 2;

  GPU& gpu;
  uint32_t values_at;

  // True if the numbers that this thread checks contain one; the threads of a group together check
  // all.
  ANNULUS_GPU bool Any() const {
    bool any = false;
    for (uint32_t at = gpu.Anew(gpu.Thread()) % kGroupThreads * 16; at < CONFIG::kTileBytes;
         at += kGroupThreads * 16) {
      const auto chunk = gpu.template LoadShared<Chunk>(values_at + at);
      ANNULUS_UNROLL
      for (int w = 0; w < 4; ++w) any |= HasNonfinite(chunk.word[w]);
    }
    return any;
  }

  // True if row `key` of the tile contains one. A whole warp calls it.
  ANNULUS_GPU bool IsNonfinite(int key) const {
    const int lane = gpu.Anew(gpu.Thread()) % 32;
    uint32_t any = 0;
    ANNULUS_UNROLL
    for (int panel = 0; panel < CONFIG::kPanels; ++panel) {
      const auto two = gpu.template LoadShared<uint32_t>(
          values_at + panel * CONFIG::kKeyPanelBytes + key * kPanelRowBytes + lane * 4);
      any |= HasNonfinite(two) ? 1 : 0;
    }
    ANNULUS_UNROLL
    for (int lanes = 1; lanes < 32; lanes *= 2) any |= gpu.ShuffleXor(any, lanes);
    return any != 0;
  }
  // Sets the row to 0. A whole warp calls it.
  ANNULUS_GPU void Clear(int key) const {
    const int lane = gpu.Anew(gpu.Thread()) % 32;
    gpu.SyncWarp();  // All lanes have checked the row.
    for (int chunk = lane; chunk < CONFIG::kPanels * 8; chunk += 32)
      gpu.template StoreShared<Chunk>(
          values_at + chunk / 8 * CONFIG::kKeyPanelBytes + key * kPanelRowBytes + chunk % 8 * 16,
          Chunk{{0, 0, 0, 0}});
  }

  // Adds scale · weights · values of the rows for which `takes` is true. `takes` must be the same
  // for a whole warp.
  template <class TAKES>
  ANNULUS_GPU void Add(const uint32_t (&weights)[kSteps][4], const uint32_t (&seen)[2], float scale,
                       const TAKES& takes, float (&sums)[kSums]) const {
    // Opaque, so that values derived from it take no registers in the loops over other tiles.
    const int thread = gpu.Anew(gpu.Thread()), lane = thread % 32;
    const uint32_t shares_at = CONFIG::kSharesAt + (thread - kGroupThreads) / 32 * 16 * 8;
    for (int key = 0; key < CONFIG::kKeys; ++key) {
      if (!takes(key)) continue;
      const int pair = key % 8 / 2 == lane % 4 ? key / 8 : -1;
      ANNULUS_UNROLL
      for (int i = 0; i < kSteps * 4; ++i) {
        const int half = i % 2;
        if (i / 2 != pair) continue;
        const uint32_t word = weights[i / 4][i % 4];
        const float weight = scale * GPU::template ToFloat<CONFIG::kElement>(
                                         static_cast<uint16_t>(word >> key % 2 * 16));
        const bool sees = (seen[half] >> (pair * 2 + key % 2) & 1) != 0;
        gpu.template StoreShared<TwoFloats>(shares_at + (lane / 4 + half * 8) * 8,
                                            TwoFloats{{weight, sees ? 1.0f : 0.0f}});
      }
      gpu.SyncWarp();
      const auto first = gpu.template LoadShared<TwoFloats>(shares_at + lane / 4 * 8);
      const auto second = gpu.template LoadShared<TwoFloats>(shares_at + (lane / 4 + 8) * 8);
      gpu.SyncWarp();
      AddKey(key, lane, first, second, sums);
    }
  }

 private:
  ANNULUS_GPU static bool HasNonfinite(uint32_t two) {
    constexpr uint32_t kExponent = CONFIG::kElement == Element::kBf16 ? 0x7f80 : 0x7c00;
    return (two & kExponent) == kExponent || (two >> 16 & kExponent) == kExponent;
  }

  ANNULUS_GPU void AddKey(int key, int lane, const TwoFloats& first, const TwoFloats& second,
                          float (&sums)[kSums]) const {
    const uint32_t row_at = values_at + key * kPanelRowBytes + lane % 4 * 4;
    const uint32_t swizzle = key % 8 * 16;
    ANNULUS_UNROLL
    for (int j = 0; j < CONFIG::kDim / 8; ++j) {
      const auto two = gpu.template LoadShared<uint32_t>(row_at + j / 8 * CONFIG::kKeyPanelBytes +
                                                         (j % 8 * 16 ^ swizzle));
      ANNULUS_UNROLL
      for (int c = 0; c < 2; ++c) {
        const float value =
            GPU::template ToFloat<CONFIG::kElement>(static_cast<uint16_t>(two >> (16 * c)));
        float& low = sums[4 * j + c];
        float& high = sums[4 * j + 2 + c];
        if (first.value[1] != 0) low = GPU::Fma(first.value[0], value, low);
        if (second.value[1] != 0) high = GPU::Fma(second.value[0], value, high);
      }
    }
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_EPILOGUE_INL_H_

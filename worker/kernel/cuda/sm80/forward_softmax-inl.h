#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM80_FORWARD_SOFTMAX_INL_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM80_FORWARD_SOFTMAX_INL_H_

#include "worker/kernel/cuda/sm80/forward_scores-inl.h"
#include "worker/kernel/cuda/sm80/forward_tiles-inl.h"

// Online softmax of the portable forward kernel, and loads and stores of its running state.
// Included by forward_block-inl.h. Start at Softmax::Weigh and StateRows.
namespace annulus::cuda {

// The running state of a thread's two slots. The four lanes of a slot hold the same values. Weights
// are summed tile by tile, so that the sum does not depend on how keys are cut into tasks.
struct SlotState {
  float max[2], weight[2];
};

template <class GPU, class CONFIG>
struct Softmax {
  using Products = TileProducts<GPU, CONFIG>;
  using Scores = typename Products::Scores;

  GPU& gpu;
  const ForwardArgs& args;
  int lane = gpu.Thread() % 32, warp = gpu.Thread() / 32;

  // The bits of a thread's visible scores.
  ANNULUS_GPU uint32_t VisibleOf(const KeyTile& at) const {
    uint32_t seen = 0;
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int slot = warp * 16 + half * 8 + lane / 4;
      const uint64_t mask = at.masked ? gpu.template LoadShared<uint64_t>(
                                            CONFIG::kMasksAt + (at.parity * kTileSlots + slot) * 8)
                                      : ~uint64_t{0};
      ANNULUS_UNROLL
      for (int tile = 0; tile < CONFIG::kKeyTiles; ++tile) {
        const auto two = static_cast<uint32_t>(mask >> (tile * 8 + lane % 4 * 2)) & 3;
        seen |= two << (tile * 4 + half * 2);
      }
    }
    return seen;
  }

  // Turns scores into weights and updates the state. `shrink`: the rescale factor of earlier sums
  // of each slot. Returns the bits of visible scores.
  ANNULUS_GPU uint32_t Weigh(const KeyTile& at, Scores& scores, SlotState& state,
                             float (&shrink)[2]) const {
    uint32_t seen = VisibleOf(at);
    ANNULUS_UNROLL
    for (int tile = 0; tile < CONFIG::kKeyTiles; ++tile) {
      ANNULUS_UNROLL
      for (int i = 0; i < 4; ++i) scores[tile][i] *= args.scale;
    }
    const ScoreChanges<GPU, CONFIG> changes{gpu, args};
    if constexpr (CONFIG::kChanges) changes.Change(at, scores, seen);
    if (at.masked) Hide(seen, scores);
    WeighHalf<0>(seen, scores, state, shrink);
    WeighHalf<1>(seen, scores, state, shrink);
    if constexpr (CONFIG::kChanges) changes.Drop(at, seen, scores);
    return seen;
  }

 private:
  // Sets masked scores to −infinity.
  ANNULUS_GPU static void Hide(uint32_t seen, Scores& scores) {
    ANNULUS_UNROLL
    for (int tile = 0; tile < CONFIG::kKeyTiles; ++tile) {
      ANNULUS_UNROLL
      for (int i = 0; i < 4; ++i)
        if ((seen & ScoreBit(tile, i)) == 0) scores[tile][i] = -Infinity();
    }
  }

  ANNULUS_GPU static float Exponential(float t) {
    if constexpr (CONFIG::kWide) return Exp2<GPU>(t);
    return GPU::Exp2Nearly(t);
  }

  template <int HALF>
  ANNULUS_GPU void WeighHalf(uint32_t seen, Scores& scores, SlotState& state,
                             float (&shrink)[2]) const {
    float top = -Infinity();
    ANNULUS_UNROLL
    for (int tile = 0; tile < CONFIG::kKeyTiles; ++tile) {
      ANNULUS_UNROLL
      for (int i = 2 * HALF; i < 2 * HALF + 2; ++i)
        top = scores[tile][i] > top ? scores[tile][i] : top;
    }
    top = Most(top, gpu.ShuffleXor(top, 1));
    top = Most(top, gpu.ShuffleXor(top, 2));
    const float old = state.max[HALF];
    const float now = top > old ? top : old;  // NaN stays.
    // All scores were −infinity so far: any finite reference gives weights of 0.
    const float reference = now == -Infinity() ? 0.0f : now;
    float weight = 0;
    ANNULUS_UNROLL
    for (int tile = 0; tile < CONFIG::kKeyTiles; ++tile) {
      ANNULUS_UNROLL
      for (int i = 2 * HALF; i < 2 * HALF + 2; ++i) {
        scores[tile][i] = Exponential((scores[tile][i] - reference) * kLog2e);
        weight += scores[tile][i];
      }
    }
    weight += gpu.ShuffleXor(weight, 1);
    weight += gpu.ShuffleXor(weight, 2);
    shrink[HALF] = Exp2<GPU>((old - reference) * kLog2e);
    state.weight[HALF] = state.weight[HALF] * shrink[HALF] + weight;
    state.max[HALF] = now;
    NoteSeen<HALF>(seen, weight, state);
  }

  // A slot that has seen keys must differ from one that has seen none, even if all scores are
  // −infinity or NaN (attention/numerics/partial.h).
  template <int HALF>
  ANNULUS_GPU void NoteSeen(uint32_t seen, float weight, SlotState& state) const {
    uint32_t mine = 0;
    ANNULUS_UNROLL
    for (int tile = 0; tile < CONFIG::kKeyTiles; ++tile)
      mine |= ScoreBit(tile, 2 * HALF) | ScoreBit(tile, 2 * HALF + 1);
    uint32_t notes = ((seen & mine) != 0 ? 1 : 0) | (weight != weight ? 2 : 0);
    notes |= gpu.ShuffleXor(notes, 1);
    notes |= gpu.ShuffleXor(notes, 2);
    if (state.max[HALF] != -Infinity() || notes == 0) return;
    state.max[HALF] = (notes & 2) != 0 ? BitsAs<float>(0x7fc00000u) : LowestFloat();
  }
};

// The accumulator rows of a tile.
template <class GPU, class CONFIG>
struct StateRows {
  using Products = TileProducts<GPU, CONFIG>;
  using Sums = typename Products::Sums;

  GPU& gpu;
  const ForwardArgs& args;
  const ForwardTask& task;
  int lane = gpu.Thread() % 32, warp = gpu.Thread() / 32;

  // Loads the state. Slots that see no key of the task get an empty state, which is not used.
  ANNULUS_GPU void Load(SlotState& state, Sums& sums) const {
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int32_t row = Row(half), head = Head(half);
      const float max = row < 0
                            ? -Infinity()
                            : gpu.template Load<float>(At(task.out, row, head, task.max_offset, 4));
      const bool fresh = max == -Infinity();  // The sums of such a row are undefined.
      state.max[half] = max;
      state.weight[half] = 0;
      if (row >= 0)
        state.weight[half] =
            gpu.template Load<float>(At(task.out, row, head, task.weight_offset, 4));
      const std::byte* from = Sum(row, head);
      ANNULUS_UNROLL
      for (int tile = 0; tile < CONFIG::kColumnTiles; ++tile) {
        ANNULUS_UNROLL
        for (int c = 0; c < 2; ++c) {
          const int column = tile * 8 + lane % 4 * 2 + c;
          sums[tile][2 * half + c] = fresh || column >= args.value_dim
                                         ? 0.0f
                                         : gpu.template Load<float>(from + column * 4);
        }
      }
    }
  }

  ANNULUS_GPU void Store(const SlotState& state, const Sums& sums) const {
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int32_t row = Row(half), head = Head(half);
      if (row < 0) continue;
      if (lane % 4 == 0) {
        gpu.template Store<float>(At(task.out, row, head, task.max_offset, 4), state.max[half]);
        gpu.template Store<float>(At(task.out, row, head, task.weight_offset, 4),
                                  state.weight[half]);
      }
      std::byte* to = Sum(row, head);
      ANNULUS_UNROLL
      for (int tile = 0; tile < CONFIG::kColumnTiles; ++tile) {
        ANNULUS_UNROLL
        for (int c = 0; c < 2; ++c) {
          const int column = tile * 8 + lane % 4 * 2 + c;
          if (column < args.value_dim)
            gpu.template Store<float>(to + column * 4, sums[tile][2 * half + c]);
        }
      }
    }
  }

 private:
  ANNULUS_GPU int Slot(int half) const { return warp * 16 + half * 8 + lane / 4; }
  ANNULUS_GPU int32_t Row(int half) const {
    return gpu.template LoadShared<int32_t>(SlotAt<CONFIG>(kSlotRow, Slot(half)));
  }
  ANNULUS_GPU int32_t Head(int half) const {
    return gpu.template LoadShared<int32_t>(SlotAt<CONFIG>(kSlotHead, Slot(half)));
  }
  ANNULUS_GPU std::byte* Sum(int32_t row, int32_t head) const {
    return At(task.out, row, head, 0, int64_t{args.value_dim} * 4);
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM80_FORWARD_SOFTMAX_INL_H_

#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_GRADIENT_ROWS_INL_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_GRADIENT_ROWS_INL_H_

#include "worker/kernel/cuda/sm90/hopper_gradient_config.h"
#include "worker/kernel/cuda/sm90/hopper_slots-inl.h"

// Own rows, and the data of streamed slots, in the gradient kernel for sm_90a. Included by
// hopper_gradient_block-inl.h, hopper_gradient_mainloop-inl.h and hopper_gradient_producer-inl.h.
// Start at HopperOwnRows and HopperSlotInfo.
namespace annulus::cuda {

// The LSE of a slot in the scale of scores, times log2(e), as two numbers: `rest` is the rounding
// error of `lse`.
struct PowerOf2Lse {
  float lse = 0, rest = 0;
};
template <class GPU>
ANNULUS_GPU PowerOf2Lse MakePowerOf2Lse(float natural, float rest) {
  const float power = natural * kLog2e;
  return {power, GPU::Fma(natural, kLog2e, -power) + rest * kLog2e};
}

// A task of an item.
struct HopperWork {
  const ForwardItem& item;
  const ForwardTask& task;
  const GradientTask& more;
};

// The own rows of a consumer group: thread 4·g + c of a warp has its rows g and g + 8.
template <class GPU, class CONFIG>
struct HopperOwnRows {
  using Sums = float[CONFIG::kSums];

  GPU& gpu;
  const ForwardArgs& args;
  const HopperWork& work;
  int group;
  HopperSlots<GPU, CONFIG> slots{gpu, args, work.item};

  struct Place {
    int32_t row, head;
    bool in_task;
  };
  // The place of row `own` of the group.
  ANNULUS_GPU Place PlaceOf(int own) const {
    const int number = group * kGroupSlots + own;
    if constexpr (CONFIG::kOfQueries) {
      const auto place = slots.PlaceOf(work.task, number);
      return {place.row, place.head, place.in_task};
    } else {
      const auto key = static_cast<int32_t>(work.item.tile * kOwnRows) + number;
      return {key, work.item.kv_head, key >= work.task.k_begin && key < work.task.k_end};
    }
  }
  ANNULUS_GPU int OwnOf(int half) const {
    const int thread = gpu.Anew(gpu.Thread());
    return thread % kGroupThreads / 32 * 16 + half * 8 + thread % 32 / 4;
  }

  // Copy both inputs to shared memory; they have arrived when EndLoad returns. Missing columns and
  // rows become 0. The whole group calls both, once none of its threads reads the earlier content.
  ANNULUS_GPU void BeginLoad() const {
    const BlockAt& block = CONFIG::kOfQueries ? work.task.q : work.task.kv;
    LoadInput(block, false, 0, args.head_dim);
    LoadInput(block, true, CONFIG::kOfQueries ? work.more.d_out_offset : work.task.value_offset,
              args.value_dim);
    gpu.CommitCopies();
  }
  ANNULUS_GPU void EndLoad() const {
    gpu.template WaitCopies<0>();
    gpu.FenceAsync();
    gpu.SyncGroup(1 + group);  // 0 is the block's.
  }

  // Loads the accumulators of the thread's rows from a section of a block. Rows outside the task
  // become 0.
  ANNULUS_GPU void LoadSums(const BlockAt& block, int64_t offset, int32_t dim, Sums& sums) const {
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) {
      const Place place = PlaceOf(OwnOf(half));
      const std::byte* const from = SumsOf(block, place, offset, dim);
      ANNULUS_UNROLL
      for (int j = 0; j < CONFIG::kDim / 8; ++j) {
        TwoFloats two = {{0, 0}};
        if (place.in_task && j * 8 < dim) two = gpu.template Load<TwoFloats>(from + j * 32);
        sums[4 * j + 2 * half] = two.value[0];
        sums[4 * j + 2 * half + 1] = two.value[1];
      }
    }
  }
  // Stores them. `touched`: bits of the rows that have received something; others keep their bits.
  ANNULUS_GPU void StoreSums(const BlockAt& block, int64_t offset, int32_t dim, uint32_t touched,
                             const Sums& sums) const {
    ANNULUS_UNROLL
    for (int half = 0; half < 2; ++half) {
      const Place place = PlaceOf(OwnOf(half));
      if (!place.in_task || (touched >> half & 1) == 0) continue;
      std::byte* const to = SumsOf(block, place, offset, dim);
      ANNULUS_UNROLL
      for (int j = 0; j < CONFIG::kDim / 8; ++j) {
        const TwoFloats two = {{sums[4 * j + 2 * half], sums[4 * j + 2 * half + 1]}};
        if (j * 8 < dim) gpu.template Store<TwoFloats>(to + j * 32, two);
      }
    }
  }

 private:
  ANNULUS_GPU void LoadInput(const BlockAt& block, bool second, int64_t offset, int32_t dim) const {
    constexpr int kChunks = CONFIG::kPanels * 8;
    const uint32_t to = CONFIG::OwnAt(second, group);
    const int thread = gpu.Anew(gpu.Thread()) % kGroupThreads, chunk = thread % kChunks;
    ANNULUS_NO_UNROLL
    for (int own = thread / kChunks; own < kGroupSlots; own += kGroupThreads / kChunks) {
      const Place place = PlaceOf(own);
      const bool there = place.in_task && chunk * 8 < dim;
      const std::byte* from = block.data;
      if (there) from = At(block, place.row, place.head, offset + chunk * 16, int64_t{dim} * 2);
      gpu.CopyChunkLater(Swizzle128(to + chunk / 8 * CONFIG::kOwnPanelBytes + own * kPanelRowBytes +
                                    chunk % 8 * 16),
                         from, there);
    }
  }
  // The address of the thread's first columns: the others follow at a distance of 8 columns.
  ANNULUS_GPU std::byte* SumsOf(const BlockAt& block, const Place& place, int64_t offset,
                                int32_t dim) const {
    return At(block, place.row, place.head, offset + gpu.Thread() % 4 * 8, int64_t{dim} * 4);
  }
};

// Sets the bits of the keys [begin, end) among the 128 keys from `first` on: four words.
ANNULUS_GPU void AddKeys(int32_t begin, int32_t end, int32_t first, uint32_t (&mask)[4]) {
  ANNULUS_UNROLL
  for (int w = 0; w < 4; ++w) {
    const int32_t from = Most(begin - first - 32 * w, 0), to = Least(end - first - 32 * w, 32);
    if (from >= to) continue;
    mask[w] |= (to == 32 ? ~uint32_t{0} : (uint32_t{1} << to) - 1) & ~((uint32_t{1} << from) - 1);
  }
}

// The data of streamed query slots that the keys of a block need. The info warps write it, one
// stage of the ring at a time; consumers read it with the tile.
template <class GPU, class CONFIG>
struct HopperSlotInfo {
  static constexpr int kThreadsOfInfo = kInfoWarps * 32;

  GPU& gpu;
  const ForwardArgs& args;
  TableReader<GPU> tables{gpu, args};

  // Puts the data of tile `tile` of slots. `masked`: some row of it does not see some key of the
  // block's tile. Slots that no row fills are 0 in both inputs, so a weight of 1 adds nothing for
  // them.
  ANNULUS_GPU void Put(const HopperWork& work, int32_t tile, bool masked, int stage) const {
    const int thread = gpu.Thread() - (kGroupThreads - kThreadsOfInfo);
    uint32_t some_hidden = 0;
    ANNULUS_NO_UNROLL
    for (int slot = thread; slot < CONFIG::kOthers; slot += kThreadsOfInfo) {
      const bool comes = slot < RowsThatComeBy(CONFIG::kOthers, args.group) * args.group;
      PowerOf2Lse lse;
      float delta = 0;
      Chunk mask = {{0, 0, 0, 0}};
      if (comes) Find(work, tile, slot, masked, lse, delta, mask.word);
      ANNULUS_UNROLL
      for (int w = 0; w < 4; ++w) some_hidden |= comes ? ~mask.word[w] : 0;
      gpu.template StoreShared<float>(CONFIG::LseAt(stage) + slot * 4, lse.lse);
      gpu.template StoreShared<float>(CONFIG::LseRestAt(stage) + slot * 4, lse.rest);
      gpu.template StoreShared<float>(CONFIG::DeltaAt(stage) + slot * 4, delta);
      gpu.template StoreShared<Chunk>(CONFIG::MasksAt(stage) + slot * CONFIG::kMaskBytes, mask);
    }
    some_hidden = some_hidden != 0 ? 1 : 0;
    ANNULUS_UNROLL
    for (int lanes = 1; lanes < 32; lanes *= 2) some_hidden |= gpu.ShuffleXor(some_hidden, lanes);
    if (gpu.Thread() % 32 == 0)
      gpu.template StoreShared<uint32_t>(CONFIG::MaskedAt(stage) + thread / 32 * 4, some_hidden);
  }

  // True if some slot of the stage that a row fills does not see some key. If false, the masks must
  // not be read.
  ANNULUS_GPU bool Masked(int stage) const {
    uint32_t masked = 0;
    ANNULUS_UNROLL
    for (int warp = 0; warp < kInfoWarps; ++warp)
      masked |= gpu.template LoadShared<uint32_t>(CONFIG::MaskedAt(stage) + warp * 4);
    return masked != 0;
  }

  // The slots that see the thread's key `own` of the block: bit 2·j + c is slot 8·j + first + c.
  ANNULUS_GPU uint32_t SeenBy(int own, int stage) const {
    const int first = gpu.Thread() % 4 * 2;
    uint32_t seen = 0;
    ANNULUS_UNROLL
    for (int i = 0; i < CONFIG::kOthers / 4; ++i) {
      const int slot = i / 2 * 8 + first + i % 2;
      const auto word = gpu.template LoadShared<uint32_t>(CONFIG::MasksAt(stage) +
                                                          slot * CONFIG::kMaskBytes + own / 32 * 4);
      seen |= (word >> own % 32 & 1) << i;
    }
    return seen;
  }

 private:
  // Leaves the outputs unchanged for a slot that sees no key of the task.
  ANNULUS_GPU void Find(const HopperWork& work, int32_t tile, int slot, bool masked,
                        PowerOf2Lse& lse, float& delta, uint32_t (&mask)[4]) const {
    const ForwardTask& task = work.task;
    const int rows = RowsThatComeBy(CONFIG::kOthers, args.group);
    const int32_t row = tile * rows + slot / args.group;
    const int32_t head = work.item.kv_head * args.group + slot % args.group;
    if (row < task.q_begin || row >= task.q_end || head < task.head_begin || head >= task.head_end)
      return;
    const auto number = [&](int64_t offset) {
      return gpu.template Load<float>(At(task.q, row, head, offset, 4));
    };
    const float its_lse = number(work.more.lse_offset);
    const float its_delta = number(work.more.delta_offset);
    if (its_lse == -Infinity()) return;  // It sees no key anywhere.
    const int64_t rest_offset = work.more.lse_rest_offset;
    lse = MakePowerOf2Lse<GPU>(its_lse, rest_offset < 0 ? 0.0f : number(rest_offset));
    delta = its_delta;
    if (!masked) {
      for (int w = 0; w < 4; ++w) mask[w] = ~uint32_t{0};
      return;
    }
    const auto first = static_cast<int32_t>(work.item.tile * kOwnRows);
    if (task.class_at < 0) {
      AddKeys(task.k_begin, task.k_end, first, mask);
      return;
    }
    const auto of_head = tables.template Get<int32_t>(args.at.class_of_head, head);
    const int64_t at =
        tables.template Get<int32_t>(args.at.classes, task.class_at + of_head) + row - task.q_begin;
    const auto last = tables.template Get<int32_t>(args.at.firsts, at + 1);
    for (int32_t next = FirstBehind(tables.template Get<int32_t>(args.at.firsts, at), last, first);
         next < last; ++next) {
      const auto span = tables.template Get<KeySpan32>(args.at.spans, next);
      if (span.begin >= first + kOwnRows) break;
      AddKeys(span.begin, span.end, first, mask);
    }
  }
  // The first of a row's sorted spans that ends after `key`.
  ANNULUS_GPU int32_t FirstBehind(int32_t begin, int32_t end, int32_t key) const {
    while (begin < end) {
      const int32_t middle = begin + (end - begin) / 2;
      if (tables.template Get<KeySpan32>(args.at.spans, middle).end <= key)
        begin = middle + 1;
      else
        end = middle;
    }
    return begin;
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM90_HOPPER_GRADIENT_ROWS_INL_H_

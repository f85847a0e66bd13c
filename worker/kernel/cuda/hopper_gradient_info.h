#ifndef ANNULUS_WORKER_KERNEL_CUDA_HOPPER_GRADIENT_INFO_H_
#define ANNULUS_WORKER_KERNEL_CUDA_HOPPER_GRADIENT_INFO_H_

#include "worker/kernel/cuda/hopper_gradient_rows.h"

namespace annulus::cuda {

// Which of the 128 keys from `first` on are in [begin, end): bits of four words.
ANNULUS_GPU void AddKeys(int32_t begin, int32_t end, int32_t first, uint32_t (&mask)[4]) {
  ANNULUS_UNROLL
  for (int w = 0; w < 4; ++w) {
    const int32_t from = Most(begin - first - 32 * w, 0), to = Least(end - first - 32 * w, 32);
    if (from >= to) continue;
    mask[w] |= (to == 32 ? ~uint32_t{0} : (uint32_t{1} << to) - 1) & ~((uint32_t{1} << from) - 1);
  }
}

// What the keys of a block need of the query slots that come by. The info warps write it, a stage
// of the ring at a time; consumers read it with the tile.
template <class GPU, class CONFIG>
struct HopperSlotInfo {
  static constexpr int kThreadsOfInfo = kInfoWarps * 32;

  GPU& gpu;
  const ForwardArgs& args;
  TableReader<GPU> tables{gpu, args};

  // Of tile `tile` of slots. `masked`: some row of it does not see some key of the block's tile.
  // Slots that no row fills are 0 in both inputs: a weight of 1 makes nothing of them.
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

  // Whether some slot of the stage that a row fills does not see some key. If none, masks are not
  // to be read.
  ANNULUS_GPU bool Masked(int stage) const {
    uint32_t masked = 0;
    ANNULUS_UNROLL
    for (int warp = 0; warp < kInfoWarps; ++warp)
      masked |= gpu.template LoadShared<uint32_t>(CONFIG::MaskedAt(stage) + warp * 4);
    return masked != 0;
  }

  // Which slots see the thread's key `own` of the block: bit 2·j + c is slot 8·j + first + c.
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
  // Leaves what it is given to a slot that sees nothing of the task.
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
    if (its_lse == -Infinity()) return;  // It sees nothing anywhere.
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
  // The first of a row's spans, which are sorted, that does not end at `key` or before.
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

#endif  // ANNULUS_WORKER_KERNEL_CUDA_HOPPER_GRADIENT_INFO_H_

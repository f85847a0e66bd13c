#ifndef ANNULUS_WORKER_KERNEL_CUDA_GRADIENT_KEYS_H_
#define ANNULUS_WORKER_KERNEL_CUDA_GRADIENT_KEYS_H_

#include "worker/kernel/cuda/gradient_parts.h"

namespace annulus::cuda {

// Where the sums of a thread's two keys of a tile are carried; nullptr: they are not the task's.
template <class GPU>
struct KeySums {
  GPU& gpu;
  const GradientArgs& args;
  const GradientWork& work;
  int32_t first;

  ANNULUS_GPU std::byte* FirstSums(int own) const { return Of(own, 0, args.forward.head_dim); }
  ANNULUS_GPU std::byte* SecondSums(int own) const {
    return Of(own, work.more.d_value_offset, args.forward.value_dim);
  }
  ANNULUS_GPU std::byte* Of(int own, int64_t offset, int32_t dim) const {
    const int32_t key = first + gpu.Thread() / 32 * 16 + own * 8 + gpu.Thread() % 32 / 4;
    if (key < work.task.k_begin || key >= work.task.k_end) return nullptr;
    return At(work.more.d_kv, key, work.kv_head, offset, int64_t{dim} * 4);
  }
};

// What a task gives to a tile of keys: its query slots come by, tile by tile.
template <class GPU, class CONFIG>
struct GradientsOfKeys {
  using Sums = typename GradientProducts<GPU, CONFIG>::Sums;

  GPU& gpu;
  const GradientArgs& args;
  const GradientWork& work;

  ANNULUS_GPU void Run(int32_t tile) const {
    const ForwardTask& task = work.task;
    const int32_t first = tile * kTileKeys, group = args.forward.group;
    if (first + kTileKeys <= task.k_begin || first >= task.k_end) return;
    const GradientParts<GPU, CONFIG> parts{gpu, args, work};
    const GradientSums<GPU, CONFIG> keys{gpu, args.forward.head_dim};
    const GradientSums<GPU, CONFIG> values{gpu, args.forward.value_dim};
    const KeySums<GPU> sums_of{gpu, args, work, first};
    const auto key_sums = [&](int own) { return sums_of.FirstSums(own); };
    const auto value_sums = [&](int own) { return sums_of.SecondSums(own); };
    Sums d_keys, d_values;
    if constexpr (CONFIG::kHasKeys) keys.Clear(d_keys);
    if constexpr (CONFIG::kHasValues) values.Clear(d_values);
    uint32_t seen = 0;  // By the thread's two keys.
    bool begun = false;
    const auto end = static_cast<int32_t>((int64_t{task.q_end} * group - 1) / kTileSlots);
    auto slots = static_cast<int32_t>(int64_t{task.q_begin} * group / kTileSlots);
    for (; slots <= end; ++slots) {
      if (!MaySee(slots, first)) continue;
      bool masked = false;
      if (!FindMasks(slots, tile, masked)) continue;
      if (!begun) {
        begun = true;
        if constexpr (CONFIG::kChanges) Tiles(SlotSpans()).PutKeyRows(tile, 0);
        parts.LoadOwn(first);
        if constexpr (CONFIG::kHasKeys) keys.Load(key_sums, d_keys);
        if constexpr (CONFIG::kHasValues) values.Load(value_sums, d_values);
      }
      ANNULUS_NO_UNROLL
      for (int part = 0; part < kTileSlots; part += CONFIG::kPart)
        seen |= parts.Run({part, masked}, part, d_keys, d_values);
    }
    if (!begun) return;
    seen |= gpu.ShuffleXor(seen, 1);
    seen |= gpu.ShuffleXor(seen, 2);
    // A key that nobody sees keeps its bits.
    const auto seen_keys = [&](int own) {
      return (seen >> own & 1) != 0 ? key_sums(own) : nullptr;
    };
    const auto seen_values = [&](int own) {
      return (seen >> own & 1) != 0 ? value_sums(own) : nullptr;
    };
    if constexpr (CONFIG::kHasKeys) keys.Store(seen_keys, d_keys);
    if constexpr (CONFIG::kHasValues) values.Store(seen_values, d_values);
  }

 private:
  // Whether some row of a tile of slots may see some key from `first` on.
  ANNULUS_GPU bool MaySee(int32_t slots, int32_t first) const {
    if (work.more.hull_at < 0) return true;
    const TableReader<GPU> tables{gpu, args.forward};
    const int64_t group = args.forward.group, slot = int64_t{slots} * kTileSlots;
    const int64_t begin = Most<int64_t>(slot / group, work.task.q_begin);
    const int64_t last =
        Least<int64_t>((slot + kTileSlots - 1) / group, int64_t{work.task.q_end} - 1);
    const int32_t first_chunk = work.task.q_begin / kChunkRows;
    for (int64_t chunk = begin / kChunkRows; chunk <= last / kChunkRows; ++chunk) {
      const auto hull =
          tables.template Get<KeySpan32>(args.hulls, work.more.hull_at + chunk - first_chunk);
      if (hull.begin < first + kTileKeys && hull.end > first) return true;
    }
    return false;
  }

  ANNULUS_GPU KeyTiles<GPU, CONFIG> Tiles(const SlotSpans& spans) const {
    return {gpu, args.forward, work.task, TileHull(), spans};
  }

  // Finds what the slots of a tile see of the keys' tile, by barriers. False: nothing.
  ANNULUS_GPU bool FindMasks(int32_t slots, int32_t tile, bool& masked) const {
    const bool mine = gpu.Thread() < kTileSlots;
    uint64_t mask = 0;
    if (mine) {
      const SlotSpans spans = FindGradientSlot<GPU, CONFIG>(gpu, args.forward, work, slots);
      mask = Tiles(spans).MaskOf(tile);
      gpu.template StoreShared<uint64_t>(CONFIG::kMasksAt + gpu.Thread() * 8, mask);
    }
    if (!gpu.SyncOr(mask != 0)) return false;
    masked = gpu.SyncOr(mine && mask != ~uint64_t{0});
    if (CONFIG::kChanges && (args.forward.change.bias || args.forward.change.bits)) masked = true;
    return true;
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_GRADIENT_KEYS_H_

#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM80_GRADIENT_BLOCK_INL_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM80_GRADIENT_BLOCK_INL_H_

#include "worker/kernel/cuda/sm80/gradient_rows-inl.h"
#include "worker/kernel/cuda/sm80/gradient_weights-inl.h"

// The gradient kernel, for sm_80 and later. Included by gradient_kernel.cuh, and by the tests'
// emulator. Start at GradientBlock::Run, which runs GradientsOfQueries or GradientsOfKeys;
// GradientParts::Run is one iteration of the mainloop.
namespace annulus::cuda {

// Adds a part of the streamed tile to the sums of a block's own rows. Ends with a barrier: all
// shared memory but the own rows may then be overwritten.
template <class GPU, class CONFIG>
struct GradientParts {
  using Products = GradientProducts<GPU, CONFIG>;
  using Scores = typename Products::Scores;
  using Sums = typename Products::Sums;
  static constexpr bool kOfQueries = CONFIG::kOfQueries;

  GPU& gpu;
  const GradientArgs& args;
  const GradientWork& work;
  GradientRows<GPU, CONFIG> rows{gpu, args.forward, work};

  // Loads the own rows. They have arrived after the next part's first barrier.
  ANNULUS_GPU void LoadOwn(int32_t first) const {
    rows.LoadFirst(kOfQueries, CONFIG::kOwnFirstAt, kTileSlots, first);
    if constexpr (CONFIG::kSide != GradientSide::kValues)
      rows.LoadSecond(kOfQueries, CONFIG::kOwnSecondAt, kTileSlots, first);
    gpu.CommitCopies();
  }

  // Runs one part. `first`: the part's first key, or slot of its tile. `d_first` gets dS times the
  // first inputs, `d_second` gets weights times dO. Queries, and keys alone, use only `d_first`.
  // Returns bits 0 and 1: set if the thread's own row sees a key.
  ANNULUS_GPU uint32_t Run(const GradientPart& part, int32_t first, Sums& d_first,
                           Sums& d_second) const {
    rows.LoadFirst(!kOfQueries, CONFIG::kFirstAt, CONFIG::kPart, first);
    if constexpr (!CONFIG::kOneBuffer)
      rows.LoadSecond(!kOfQueries, CONFIG::kSecondAt, CONFIG::kPart, first);
    Arrive();
    Scores scores, d_scores;
    ANNULUS_UNROLL
    for (int i = 0; i < CONFIG::kPartTiles * 4; ++i)
      scores[i / 4][i % 4] = d_scores[i / 4][i % 4] = 0;
    const typename Products::First by_first{gpu, args.forward.head_dim, args.forward.head_dim};
    const typename Products::Second by_second{gpu, args.forward.value_dim, args.forward.value_dim};
    by_first.Score(scores);
    if constexpr (CONFIG::kOneBuffer) {
      gpu.Sync();
      rows.LoadSecond(!kOfQueries, CONFIG::kSecondAt, CONFIG::kPart, first);
      Arrive();
    }
    if constexpr (CONFIG::kSide != GradientSide::kValues) by_second.Score(d_scores);
    const GradientWeights<GPU, CONFIG> weights{gpu, args};
    const uint32_t seen = weights.Weigh(part, scores, d_scores);
    if constexpr (kOfQueries && CONFIG::kChanges) {
      if (args.d_bias) {
        gpu.Sync();
        GradientBias<GPU, CONFIG>{gpu, args, work}.Add(part);
        gpu.Sync();
      }
    }
    if constexpr (CONFIG::kHasValues) AddSecond(part, by_second, scores, seen, first, d_second);
    if constexpr (CONFIG::kSide != GradientSide::kValues) {
      if constexpr (CONFIG::kOneBuffer) {
        gpu.Sync();
        rows.LoadFirst(!kOfQueries, CONFIG::kFirstAt, CONFIG::kPart, first);
        Arrive();
      }
      AddFirst(part, by_first, d_scores, seen, first, d_first);
    }
    gpu.Sync();
    return OwnThatSee(seen);
  }

 private:
  ANNULUS_GPU void Arrive() const {
    gpu.CommitCopies();
    gpu.template WaitCopies<0>();
    gpu.Sync();
  }

  ANNULUS_GPU void AddFirst(const GradientPart& part, const typename Products::First& product,
                            const Scores& d_scores, uint32_t seen, int32_t first,
                            Sums& sums) const {
    const NonfiniteRows<GPU, CONFIG, typename Products::First> nonfinite{
        gpu, args.forward, product, CONFIG::kFirstAt, args.forward.head_dim};
    const float scale = args.forward.scale;
    const auto add = [&](float sum, int, float more) { return GPU::Fma(scale, more, sum); };
    if (part.masked && nonfinite.Hide()) {
      nonfinite.Add(
          d_scores, seen,
          [&](int i) { return kOfQueries ? rows.Key(first + i) : rows.Query(first + i); }, add,
          sums);
    }
    product.Accumulate(d_scores, add, sums);
  }

  ANNULUS_GPU void AddSecond(const GradientPart& part, const typename Products::Second& product,
                             const Scores& weights, uint32_t seen, int32_t first,
                             Sums& sums) const {
    const NonfiniteRows<GPU, CONFIG, typename Products::Second> nonfinite{
        gpu, args.forward, product, CONFIG::kSecondAt, args.forward.value_dim};
    const auto add = [](float sum, int, float more) { return sum + more; };
    if (part.masked && nonfinite.Hide())
      nonfinite.Add(
          weights, seen, [&](int i) { return rows.DOut(first + i); }, add, sums);
    product.Accumulate(weights, add, sums);
  }
};

// The addresses of the sums of a thread's two keys of a tile; nullptr: the key is not in the task.
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

// Adds a task to a tile of keys: its query slots are streamed past, tile by tile.
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
    uint32_t seen = 0;  // Bits of the thread's two keys that some slot sees.
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
    // A key that no slot sees keeps its bits.
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
  // False if no row of a tile of slots can see a key from `first` on.
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

  // Finds the keys of the tile that the slots of a tile see. Takes barriers. Returns false if there
  // are none.
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

// Adds a task to a tile of queries: its keys are streamed past.
template <class GPU, class CONFIG>
struct GradientsOfQueries {
  using Sums = typename GradientProducts<GPU, CONFIG>::Sums;

  GPU& gpu;
  const GradientArgs& args;
  const GradientWork& work;

  ANNULUS_GPU void Run(int32_t tile) const {
    const ForwardTask& task = work.task;
    const int64_t first = int64_t{tile} * kTileSlots;
    if (first + kTileSlots <= int64_t{task.q_begin} * args.forward.group ||
        first >= int64_t{task.q_end} * args.forward.group)
      return;
    SlotSpans spans;
    if (gpu.Thread() < kTileSlots)
      spans = FindGradientSlot<GPU, CONFIG>(gpu, args.forward, work, tile);
    gpu.Sync();
    KeyTiles<GPU, CONFIG> tiles{gpu, args.forward, task, FindHull<GPU, CONFIG>(gpu), spans};
    if (tiles.hull.begin >= tiles.hull.end) return;
    KeyTile at = tiles.Next(tiles.hull.begin / CONFIG::kKeys, 0);
    if (at.tile < 0) return;
    const GradientParts<GPU, CONFIG> parts{gpu, args, work};
    parts.LoadOwn(0);
    const GradientSums<GPU, CONFIG> accumulators{gpu, args.forward.head_dim};
    const auto row_of = [&](int own) { return FirstSums(own); };
    Sums sums;
    accumulators.Clear(sums);
    accumulators.Load(row_of, sums);
    while (at.tile >= 0) {
      ANNULUS_NO_UNROLL
      for (int part = 0; part < CONFIG::kKeys; part += CONFIG::kPart)
        parts.Run({part, at.masked}, at.tile * CONFIG::kKeys + part, sums, sums);
      at = tiles.Next(at.tile + 1, 0);
    }
    accumulators.Store(row_of, sums);
  }

  // For the thread's own row; nullptr: it has none.
  ANNULUS_GPU std::byte* FirstSums(int own) const {
    const int slot = gpu.Thread() / 32 * 16 + own * 8 + gpu.Thread() % 32 / 4;
    const auto row = gpu.template LoadShared<int32_t>(SlotAt<CONFIG>(kSlotRow, slot));
    if (row < 0 || work.more.d_q.data == nullptr) return nullptr;
    const auto head = gpu.template LoadShared<int32_t>(SlotAt<CONFIG>(kSlotHead, slot));
    return At(work.more.d_q, row, head, 0, int64_t{args.forward.head_dim} * 4);
  }
};

// The work of one thread block: brings its accumulators up to date with all tasks of its group.
template <class GPU, class CONFIG>
struct GradientBlock {
  GPU& gpu;
  const GradientArgs& args;

  ANNULUS_GPU void Run(int64_t block) const {
    const TableReader<GPU> tables{gpu, args.forward};
    const auto* groups = Table<GradientGroup>(args.groups);
    const int32_t number = tables.LastNotAbove(args.groups, sizeof(GradientGroup), args.group_count,
                                               static_cast<int32_t>(block));
    const GradientGroup& group = groups[number];
    const int32_t i = static_cast<int32_t>(block) - group.first_block;
    const int32_t kv_head = group.head_begin + i % group.heads;
    const int32_t tile = group.first_tile + i / group.heads * group.tile_step;
    for (int32_t unit = group.unit_begin; unit < group.unit_end; ++unit) {
      const auto task = tables.template Get<int32_t>(args.units, unit);
      const GradientWork work = {Table<ForwardTask>(args.forward.at.tasks)[task],
                                 Table<GradientTask>(args.tasks)[task], kv_head};
      const int32_t first_head = kv_head * args.forward.group;
      if (first_head >= work.task.head_end ||
          first_head + args.forward.group <= work.task.head_begin)
        continue;
      if constexpr (CONFIG::kOfQueries)
        GradientsOfQueries<GPU, CONFIG>{gpu, args, work}.Run(tile);
      else
        GradientsOfKeys<GPU, CONFIG>{gpu, args, work}.Run(tile);
      gpu.Sync();  // Slots are read until here.
    }
  }

 private:
  // Read at each use, as in ForwardBlock.
  template <class T>
  ANNULUS_GPU const T* Table(int64_t at) const {
    return reinterpret_cast<const T*>(args.forward.tables + at);
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM80_GRADIENT_BLOCK_INL_H_

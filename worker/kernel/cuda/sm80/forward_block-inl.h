#ifndef ANNULUS_WORKER_KERNEL_CUDA_SM80_FORWARD_BLOCK_INL_H_
#define ANNULUS_WORKER_KERNEL_CUDA_SM80_FORWARD_BLOCK_INL_H_

#include "worker/kernel/cuda/sm80/forward_softmax-inl.h"
#include "worker/kernel/cuda/sm80/nonfinite_values-inl.h"

// The forward kernel (FlashAttention by mma.sync), for sm_80 and later. Included by
// forward_kernel.cuh, and by the tests' emulator. Start at ForwardBlock::Run, then RunTile: one
// iteration of the mainloop over tiles of keys.
namespace annulus::cuda {

// The work of one thread block: brings the slots of an item up to date with all of its tasks.
// Copies overlap products: a tile's values are loaded while its keys are scored, and the next
// tile's keys while its values are multiplied.
template <class GPU, class CONFIG>
struct ForwardBlock {
  using Products = TileProducts<GPU, CONFIG>;

  GPU& gpu;
  const ForwardArgs& args;

  ANNULUS_GPU void Run(int64_t block) const {
    // Read at each use: in registers they would displace sums.
    const auto& item = reinterpret_cast<const ForwardItem*>(args.tables + args.at.items)[block];
    const auto* tasks = reinterpret_cast<const ForwardTask*>(args.tables + args.at.tasks);
    const TableReader<GPU> tables{gpu, args};
    for (int32_t unit = item.unit_begin; unit < item.unit_end; ++unit) {
      RunTask(item, tasks[tables.template Get<int32_t>(args.at.units, unit)]);
      gpu.Sync();  // Slots are read until here.
    }
  }

 private:
  ANNULUS_GPU void RunTask(const ForwardItem& item, const ForwardTask& task) const {
    SlotSpans spans;
    if (gpu.Thread() < kTileSlots) {
      const SlotFinder<GPU, CONFIG> finder{gpu, args, task};
      spans = finder.Find(item.tile, item.kv_head, gpu.Thread());
    }
    gpu.Sync();
    KeyTiles<GPU, CONFIG> tiles{gpu, args, task, FindHull<GPU, CONFIG>(gpu), spans};
    if (tiles.hull.begin >= tiles.hull.end) return;
    KeyTile at = tiles.Next(tiles.hull.begin / CONFIG::kKeys, 0);
    if (at.tile < 0) return;
    LoadQueries<GPU, CONFIG>(gpu, args, task);
    LoadKeys<GPU, CONFIG>(gpu, args, task, item.kv_head, at.tile);
    gpu.CommitCopies();
    const StateRows<GPU, CONFIG> rows{gpu, args, task};
    SlotState state;
    typename Products::Sums sums;
    rows.Load(state, sums);
    while (at.tile >= 0) at = RunTile(item, task, at, tiles, state, sums);
    rows.Store(state, sums);
    gpu.template WaitCopies<0>();
  }

  // Processes one tile. Returns the next tile, whose keys are then being loaded.
  ANNULUS_GPU KeyTile RunTile(const ForwardItem& item, const ForwardTask& task, const KeyTile& at,
                              KeyTiles<GPU, CONFIG>& tiles, SlotState& state,
                              typename Products::Sums& sums) const {
    const Products products{gpu, args.head_dim, args.value_dim};
    const NonfiniteValues<GPU, CONFIG> values{gpu, args, task};
    LoadValues<GPU, CONFIG>(gpu, args, task, item.kv_head, at.tile);
    gpu.CommitCopies();
    gpu.template WaitCopies<1>();
    gpu.Sync();  // Queries and keys have arrived.
    typename Products::Scores scores;
    ANNULUS_UNROLL
    for (int i = 0; i < CONFIG::kKeyTiles * 4; ++i) scores[i / 4][i % 4] = 0;
    products.Score(scores);
    gpu.Sync();  // Keys may be overwritten.
    const KeyTile next = tiles.Next(at.tile + 1, 1 - at.parity);
    if (next.tile >= 0) LoadKeys<GPU, CONFIG>(gpu, args, task, item.kv_head, next.tile);
    gpu.CommitCopies();
    const Softmax<GPU, CONFIG> softmax{gpu, args};
    float shrink[2];
    const uint32_t seen = softmax.Weigh(at, scores, state, shrink);
    gpu.template WaitCopies<1>();
    gpu.Sync();  // Values have arrived.
    const bool nonfinite = at.masked && values.Hide();
    products.Accumulate(
        scores, [&](float sum, int half, float more) { return GPU::Fma(sum, shrink[half], more); },
        sums);
    if (nonfinite) values.Add(item.kv_head, at.tile, scores, seen, sums);
    gpu.Sync();  // Values may be overwritten.
    return next;
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_SM80_FORWARD_BLOCK_INL_H_

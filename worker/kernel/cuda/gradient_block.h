#ifndef ANNULUS_WORKER_KERNEL_CUDA_GRADIENT_BLOCK_H_
#define ANNULUS_WORKER_KERNEL_CUDA_GRADIENT_BLOCK_H_

#include "worker/kernel/cuda/gradient_keys.h"
#include "worker/kernel/cuda/gradient_queries.h"

namespace annulus::cuda {

// One block of threads: brings its accumulators up to date with all tasks of its group.
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
      gpu.Sync();  // Slots are read until the end.
    }
  }

 private:
  // Read where they are used, as in ForwardBlock.
  template <class T>
  ANNULUS_GPU const T* Table(int64_t at) const {
    return reinterpret_cast<const T*>(args.forward.tables + at);
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_GRADIENT_BLOCK_H_

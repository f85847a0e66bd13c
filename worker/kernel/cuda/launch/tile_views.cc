#include "worker/kernel/cuda/launch/tile_views.h"

#include <algorithm>
#include <map>
#include <utility>

#include "worker/kernel/cuda/launch/hopper_config.h"
#include "worker/kernel/cuda/launch/hopper_plan.h"
#include "worker/kernel/cuda/launch/launch_plan.h"

namespace annulus::cuda {
namespace {

// The rows of a piece and the query heads of its task that a tile has.
struct TileOf {
  int64_t begin, end;
  int32_t head_begin, head_end;
};

HeadRange QueryHeads(const Task& task, int32_t kv_head, int group) {
  return {std::max(kv_head * group, task.head_begin),
          std::min((kv_head + 1) * group, task.head_end)};
}

TileOf TileIn(const CallView& call, const TaskPiece& piece, int32_t kv_head, int64_t tile,
              int64_t slots) {
  const int group = call.job.layout->group();
  const HeadRange heads = QueryHeads(call.tasks[piece.task].task, kv_head, group);
  return {std::max(piece.q_begin, tile * slots / group),
          std::min(piece.q_end, ((tile + 1) * slots + group - 1) / group), heads.begin, heads.end};
}

}  // namespace

HeadRange KvHeads(const Task& task, int group) {
  return {task.head_begin / group, (task.head_end + group - 1) / group};
}

std::vector<int32_t> AlikeHeads(const KernelJob& job, const Task& task) {
  const int group = job.layout->group();
  const HeadRange all = KvHeads(task, group);
  std::map<std::vector<std::pair<int32_t, int32_t>>, int32_t> first;
  std::vector<int32_t> alike;
  for (int32_t kv_head = all.begin; kv_head < all.end; ++kv_head) {
    const HeadRange heads = QueryHeads(task, kv_head, group);
    std::vector<std::pair<int32_t, int32_t>> classes;
    job.mask->ForEachClass(heads.begin, heads.end, [&](int32_t head, int32_t count) {
      classes.emplace_back(job.mask->ClassOf(head), count);
    });
    std::sort(classes.begin(), classes.end());
    alike.push_back(first.try_emplace(std::move(classes), kv_head).first->second);
  }
  return alike;
}

int64_t SlotsOfTile(bool hopper) { return hopper ? kHopperSlots : kTileSlots; }

Interval TilesOf(int64_t q_begin, int64_t q_end, int group, int64_t slots) {
  return {q_begin * group / slots, (q_end * group + slots - 1) / slots};
}

void TileBox::Add(const HeadRange& more_heads, Interval more_tiles) {
  heads = {std::min(heads.begin, more_heads.begin), std::max(heads.end, more_heads.end)};
  tiles = {std::min(tiles.begin, more_tiles.begin), std::max(tiles.end, more_tiles.end)};
}

int64_t CostOf(const CallView& call, const TaskPiece& piece, int32_t kv_head, int64_t tile,
               int64_t slots) {
  const Task& task = call.tasks[piece.task].task;
  const TileOf of = TileIn(call, piece, kv_head, tile, slots);
  if (task.coverage == Coverage::kFull)
    return (of.end - of.begin) * (of.head_end - of.head_begin) * (task.k_end - task.k_begin);
  int64_t cost = 0;
  call.job.mask->ForEachClass(of.head_begin, of.head_end, [&](int32_t head, int32_t count) {
    call.visible.ForEach(piece.task, head, {of.begin, of.end},
                         [&](Interval rows, absl::Span<const Sweep> sweeps, int64_t skip) {
                           const int64_t last = skip + rows.length() - 1;
                           for (const Sweep& sweep : sweeps) {
                             const int64_t of_ends =
                                 sweep.At(skip).length() + sweep.At(last).length();
                             cost += count * (of_ends * rows.length() / 2);
                           }
                         });
  });
  return cost;
}

TileShape HopperTile(const KernelJob& job) {
  return {kHopperSlots, HopperKeys(DimOf(*job.layout))};
}

bool AddRunsOf(const CallView& call, const TaskPiece& piece, int32_t kv_head, int64_t tile,
               const TileShape& shape, std::vector<KeyTileRun>* to) {
  const Task& task = call.tasks[piece.task].task;
  KeyTileRuns runs(shape.keys);
  if (task.coverage == Coverage::kFull) {
    const Sweep all = {{task.k_begin, task.k_end}, 0, 0};
    runs.AddRows(absl::MakeConstSpan(&all, 1), 0, 1);
    runs.AppendTo(to);
    return true;
  }
  const TileOf of = TileIn(call, piece, kv_head, tile, shape.slots);
  call.job.mask->ForEachClass(of.head_begin, of.head_end, [&](int32_t head, int32_t) {
    call.visible.ForEach(piece.task, head, {of.begin, of.end},
                         [&](Interval rows, absl::Span<const Sweep> sweeps, int64_t skip) {
                           runs.AddRows(sweeps, skip, rows.length());
                         });
  });
  runs.AppendTo(to);
  return runs.all_see();
}

}  // namespace annulus::cuda

#include "worker/kernel/cuda/launch/hopper_plan.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "worker/kernel/cuda/launch/hopper_config.h"
#include "worker/kernel/cuda/launch/launch_plan.h"
#include "worker/kernel/cuda/launch/table_image.h"

namespace annulus::cuda {
namespace {

int32_t Narrow(int64_t value) { return static_cast<int32_t>(value); }

int64_t ValueOffset(const KernelJob& job, const KernelTask& bound) {
  const Block& block = bound.kv.block;
  return job.layout->SecondOffset(BlockKind::kKv, block.head_end - block.head_begin);
}

bool TaskServed(const KernelJob& job, const KernelTask& bound) {
  const BlockLayout& layout = *job.layout;
  const BlockAt kv = BlockAtOf(layout, bound.kv);
  return Aligned(BlockAtOf(layout, bound.q), 0, 16) && Aligned(kv, ValueOffset(job, bound), 16) &&
         Aligned(BlockAtOf(layout, bound.out_q), 0, 8) &&
         kv.row_bytes % (layout.head_dim() * int64_t{2}) == 0 &&
         kv.row_bytes % (layout.value_dim() * int64_t{2}) == 0;
}

TensorMapSpec MapOf(const KernelJob& job, const KernelTask& bound, int64_t offset, int32_t dim) {
  const Block& block = bound.kv.block;
  return MapOfRows(BlockAtOf(*job.layout, bound.kv), {bound.task.k_begin, bound.task.k_end},
                   block.head_end - block.head_begin, offset, dim, HopperKeys(DimOf(*job.layout)));
}

}  // namespace

bool IsOfHopper(const KernelJob& job) {
  const ForwardKind kind = KindOf(job);
  return kind.element != Element::kFp32 && !kind.changes && !job.spec->deterministic &&
         job.layout->head_dim() % 8 == 0 && job.layout->value_dim() % 8 == 0;
}

bool Aligned(const BlockAt& block, int64_t offset, int64_t unit) {
  const auto address = reinterpret_cast<uintptr_t>(block.data);
  return (address | static_cast<uintptr_t>(block.row_bytes | offset)) % unit == 0;
}

TensorMapSpec MapOfRows(const BlockAt& block, Interval rows, int32_t heads, int64_t offset,
                        int32_t dim, int32_t box_rows) {
  TensorMapSpec map;
  map.base = block.data + (rows.begin - block.row_begin) * block.row_bytes + offset;
  map.columns = dim;
  map.heads = heads;
  map.rows = Narrow(rows.length());
  map.box_rows = box_rows;
  map.head_bytes = dim * int64_t{2};
  map.row_bytes = block.row_bytes;
  return map;
}

bool HopperServes(const KernelJob& job, absl::Span<const KernelTask> tasks) {
  return IsOfHopper(job) && std::all_of(tasks.begin(), tasks.end(), [&](const KernelTask& bound) {
           return TaskServed(job, bound);
         });
}

int64_t HopperBlocks(int64_t items, int multiprocessors, int kept) {
  const int64_t most = std::max(multiprocessors - kept, (multiprocessors + 1) / 2);
  return std::min(items, most);
}

// Ends move by at most one tile from row to row. So the rows meet all tiles from the first row's
// first to the last row's last. A tile that every row covers is covered by the same span in each.
void KeyTileRuns::AddRows(absl::Span<const Sweep> sweeps, int64_t skip, int64_t rows) {
  tiles_.clear();
  for (const Sweep& sweep : sweeps) {
    const Interval first = sweep.At(skip), last = sweep.At(skip + rows - 1);
    if (first.length() <= 0) continue;
    const int32_t begin = Narrow(first.begin), end = Narrow(last.end);
    const int32_t whole_begin = Narrow(last.begin), whole_end = Narrow(first.end);
    tiles_.push_back({begin / keys_, (end + keys_ - 1) / keys_, (whole_begin + keys_ - 1) / keys_,
                      whole_end / keys_});
  }
  if (tiles_.empty()) all_see_ = false;
  if (tiles_ == last_tiles_) return;
  last_tiles_ = tiles_;
  for (const Tiles& tiles : tiles_) {
    changes_.push_back({tiles.begin, 1, 0});
    changes_.push_back({tiles.end, -1, 0});
    if (tiles.whole_begin >= tiles.whole_end) continue;
    changes_.push_back({tiles.whole_begin, 0, 1});
    changes_.push_back({tiles.whole_end, 0, -1});
  }
  if (!tiles_.empty()) ++rows_;
}

void KeyTileRuns::AppendTo(std::vector<KeyTileRun>* runs) {
  std::sort(changes_.begin(), changes_.end(),
            [](const Change& a, const Change& b) { return a.at < b.at; });
  const size_t first = runs->size();
  int32_t seen = 0, whole = 0;
  for (size_t i = 0; i < changes_.size();) {
    const int32_t at = changes_[i].at;
    for (; i < changes_.size() && changes_[i].at == at; ++i) {
      seen += changes_[i].seen;
      whole += changes_[i].whole;
    }
    if (seen == 0) continue;
    const int32_t masked = whole == rows_ ? 0 : 1;
    const int32_t end = changes_[i].at;  // Every span ends at some later change.
    if (runs->size() > first && runs->back().end == at && runs->back().masked == masked)
      runs->back().end = end;
    else
      runs->push_back({at, end, masked});
  }
}

int32_t HeadsAtOnce(const KernelJob& job, absl::Span<const KernelTask> tasks, int64_t cached_bytes,
                    bool of_queries) {
  const BlockLayout& layout = *job.layout;
  std::set<std::tuple<const std::byte*, int64_t, int64_t>> known;
  int64_t rows = 0;
  for (const KernelTask& bound : tasks) {
    const Task& task = bound.task;
    const Interval range =
        of_queries ? Interval{task.q_begin, task.q_end} : Interval{task.k_begin, task.k_end};
    if (known.emplace(of_queries ? bound.q.data : bound.kv.data, range.begin, range.end).second)
      rows += range.length() * (of_queries ? layout.group() : 1);
  }
  const int64_t bytes = rows * (layout.head_dim() + layout.value_dim()) * 2;
  return Narrow(std::clamp<int64_t>(cached_bytes / std::max<int64_t>(bytes, 1), 1, 1 << 20));
}

TensorMapSpec KeyMap(const KernelJob& job, const KernelTask& bound) {
  return MapOf(job, bound, 0, job.layout->head_dim());
}
TensorMapSpec ValueMap(const KernelJob& job, const KernelTask& bound) {
  return MapOf(job, bound, ValueOffset(job, bound), job.layout->value_dim());
}

}  // namespace annulus::cuda

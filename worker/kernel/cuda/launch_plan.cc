#include "worker/kernel/cuda/launch_plan.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "attention/error.h"
#include "worker/kernel/cuda/hopper_config.h"
#include "worker/kernel/cuda/hopper_plan.h"
#include "worker/kernel/cuda/table_image.h"
#include "worker/kernel/cuda/tile_views.h"

namespace annulus::cuda {
namespace {

// Pieces are cut at multiples of a tile's slots, where that is enough.
int64_t SlotsOfTile(bool hopper) { return hopper ? kHopperSlots : kTileSlots; }

// Multiply-adds of a launch, about, where one piece of rows has no more: a fraction of a second of
// a large GPU, some seconds of FMA. So whoever waits for a device sees it come on, and a call that
// is told to stop does: a few launches at most are queued ahead.
constexpr double kMaxLaunchWork = 2.5e13;

bool HasTables(const Task& task) { return task.coverage != Coverage::kFull; }

// Bytes of tables that are the call's, or a task's, whatever rows are in a launch: what TableImage
// makes of them.
int64_t CallBytes(const KernelJob& job, bool hopper) {
  // Every table begins at a multiple of 16 bytes, maps at one of theirs.
  const int64_t gaps = 16 * 16 + (hopper ? 16 + kMapBytes : 0);
  const MaskMap& mask = *job.mask;
  int64_t entries = mask.q_heads();
  if (!KindOf(job).changes) return 4 * entries + gaps;
  const ChangeRule change = ChangeRuleOf(job);
  entries += 2 * (mask.sequences() + 1);
  if (change.alibi) entries += mask.q_heads();
  if (change.alibi || change.bits) entries += 2 * mask.sequences() * mask.q_heads();
  return 4 * entries + gaps;
}
int64_t TaskBytes(const KernelJob& job, const KernelTask& bound, bool hopper) {
  return static_cast<int64_t>(sizeof(ForwardTask)) + 4 * job.mask->classes() +
         (hopper ? kMapsOfTask * kMapBytes : 0) +
         static_cast<int64_t>((bound.q_rows->ranges().size() + bound.k_rows->ranges().size()) *
                              sizeof(RowRun));
}

class CallCutter {
 public:
  CallCutter(const KernelJob& job, absl::Span<const KernelTask> tasks,
             const CallVisibility& visible, const CutRule& rule)
      : job_(job), tasks_(tasks), visible_(visible), rule_(rule) {}

  absl::StatusOr<std::vector<LaunchPieces>> Cut() {
    for (size_t t = 0; t < tasks_.size(); ++t) {
      absl::Status status = AddTask(static_cast<int32_t>(t));
      if (!status.ok()) return status;
    }
    Flush();
    return std::move(launches_);
  }

 private:
  // Of rows [begin, end) of a task, beside TaskBytes.
  int64_t RowBytes(int32_t index, int64_t begin, int64_t end) const {
    const Task& task = tasks_[index].task;
    const int group = job_.layout->group();
    const HeadRange heads = KvHeads(task, group);
    int64_t bytes = (heads.end - heads.begin) *
                    TilesOf(begin, end, group, SlotsOfTile(rule_.hopper)) *
                    static_cast<int64_t>(sizeof(ForwardItem) + sizeof(int32_t));
    if (rule_.hopper) bytes += RunBytes({index, begin, end}, heads.begin, group);
    if (!HasTables(task)) return bytes;
    job_.mask->ForEachClass(task.head_begin, task.head_end, [&](int32_t head, int32_t) {
      bytes += 4 * (end - begin + 1);
      for (int64_t row = begin; row < end; ++row)
        bytes += static_cast<int64_t>(visible_.Of(index, head, row).size() * sizeof(KeySpan32));
    });
    return bytes;
  }

  // Rows that are added later cut runs in two, at most.
  int64_t RunBytes(const TaskPiece& piece, int32_t first_head, int group) const {
    const int64_t first = piece.q_begin * group / kHopperSlots;
    const int64_t last = first + TilesOf(piece.q_begin, piece.q_end, group, kHopperSlots);
    int64_t bytes = 0;
    std::vector<int64_t> of_head(alike_.size());
    for (size_t i = 0; i < alike_.size(); ++i) {
      const int32_t head = first_head + static_cast<int32_t>(i);
      for (int64_t tile = first; tile < last && alike_[i] == head; ++tile) {
        const size_t runs = RunsOf({job_, tasks_, visible_}, piece, head, tile).size();
        of_head[i] += static_cast<int64_t>(sizeof(int32_t) + 2 * runs * sizeof(KeyTileRun));
      }
      bytes += of_head[alike_[i] - first_head];
    }
    return bytes;
  }

  // Of rows of a task, at most.
  double WorkOf(int32_t index, int64_t rows) const {
    const Task& task = tasks_[index].task;
    return static_cast<double>(rows) * static_cast<double>(task.k_end - task.k_begin) *
           (task.head_end - task.head_begin) * rule_.products *
           (job_.layout->head_dim() + job_.layout->value_dim()) / 2;
  }

  absl::Status AddTask(int32_t index) {
    const Task& task = tasks_[index].task;
    const int64_t own = TaskBytes(job_, tasks_[index], rule_.hopper) + rule_.more_of_task;
    if (rule_.hopper) alike_ = AlikeHeads(job_, task);
    int64_t begin = task.q_begin;
    bool open = false;  // The last piece of the launch is this task's, and ends at `begin`.
    for (int64_t step = SlotsOfTile(rule_.hopper); begin < task.q_end;) {
      const int64_t end = std::min(task.q_end, (begin / step + 1) * step);
      const int64_t bytes = (open ? 0 : own) + RowBytes(index, begin, end);
      if (used_ + bytes > rule_.max_bytes) {
        if (!pieces_.empty()) {
          Flush();
          open = false;
        } else if (step > 1 && !rule_.whole_chunks) {
          step = 1;
        } else {
          return MakeError(absl::StatusCode::kResourceExhausted,
                           absl::StrCat("the mask of ", end - begin, " query rows takes ", bytes,
                                        " bytes, more than a kernel call has for tables"),
                           {"OUT_OF_MEMORY", {}, {}, {}});
        }
        continue;
      }
      const double work = WorkOf(index, end - begin);
      if (work_ + work > kMaxLaunchWork && !pieces_.empty()) {
        Flush();
        open = false;
        continue;
      }
      used_ += bytes;
      work_ += work;
      if (open)
        pieces_.back().q_end = end;
      else
        pieces_.push_back({index, begin, end});
      open = true;
      begin = end;
    }
    return absl::OkStatus();
  }

  void Flush() {
    if (!pieces_.empty()) launches_.push_back(std::move(pieces_));
    pieces_.clear();
    used_ = CallBytes(job_, rule_.hopper);
    work_ = 0;
  }

  const KernelJob& job_;
  const absl::Span<const KernelTask> tasks_;
  const CallVisibility& visible_;
  const CutRule rule_;
  int64_t used_ = CallBytes(job_, rule_.hopper);
  double work_ = 0;
  std::vector<int32_t> alike_;  // Heads of the task that is added.
  LaunchPieces pieces_;
  std::vector<LaunchPieces> launches_;
};

struct PlannedUnit {
  int32_t piece;
  int32_t runs;  // In ItemPlan::runs.
  int32_t next;  // Of the same item, in ItemPlan::units; −1: none.
};

struct PlannedItem {
  ForwardItem item;
  int32_t first, last;  // In ItemPlan::units.
  int64_t cost = 0;
};

// Items in the order in which they are taken; each has its pieces in their order.
struct ItemPlan {
  std::vector<PlannedItem> items;
  std::vector<PlannedUnit> units;
  std::vector<std::vector<KeyTileRun>> runs;
};

class ItemPlanner {
 public:
  ItemPlanner(const CallView& call, bool hopper)
      : call_(call), hopper_(hopper), slots_(SlotsOfTile(hopper)) {}

  void AddPiece(const LaunchPieces& pieces, size_t p) {
    const TaskPiece& piece = pieces[p];
    const KernelTask& bound = call_.tasks[piece.task];
    const int group = call_.job.layout->group();
    const int32_t first_head = KvHeads(bound.task, group).begin;
    const int64_t first = piece.q_begin * group / slots_;
    const int64_t tiles = TilesOf(piece.q_begin, piece.q_end, group, slots_);
    const std::vector<int32_t> alike = AlikeHeads(call_.job, bound.task);
    std::vector<std::vector<View>> views(alike.size());
    for (size_t i = 0; i < alike.size(); ++i) {
      const int32_t head = first_head + static_cast<int32_t>(i);
      if (alike[i] == head) views[i] = Look(piece, head, first, tiles);
      const std::vector<View>& seen = views[alike[i] - first_head];
      for (int64_t tile = 0; tile < tiles; ++tile)
        AddUnit(bound.out_q.data, head, first + tile, static_cast<int32_t>(p), seen[tile]);
    }
  }

  // The largest first, of so many key/value heads and then of as many more.
  ItemPlan Take(int32_t heads_at_once) {
    std::stable_sort(plan_.items.begin(), plan_.items.end(),
                     [&](const PlannedItem& a, const PlannedItem& b) {
                       const int32_t heads_of_a = a.item.kv_head / heads_at_once;
                       const int32_t heads_of_b = b.item.kv_head / heads_at_once;
                       return heads_of_a != heads_of_b ? heads_of_a < heads_of_b : a.cost > b.cost;
                     });
    return std::move(plan_);
  }

 private:
  struct View {
    int64_t cost;
    int32_t runs;
  };

  std::vector<View> Look(const TaskPiece& piece, int32_t head, int64_t first, int64_t tiles) {
    std::vector<View> views;
    for (int64_t tile = first; tile < first + tiles; ++tile) {
      views.push_back(
          {CostOf(call_, piece, head, tile, slots_), static_cast<int32_t>(plan_.runs.size())});
      if (hopper_) plan_.runs.push_back(RunsOf(call_, piece, head, tile));
    }
    return views;
  }

  void AddUnit(const std::byte* out, int32_t head, int64_t tile, int32_t piece, const View& view) {
    const auto unit = static_cast<int32_t>(plan_.units.size());
    plan_.units.push_back({piece, view.runs, -1});
    const auto [at, added] = index_.try_emplace({out, head, tile}, plan_.items.size());
    if (added) {
      const auto row = static_cast<int32_t>(tile * slots_ / call_.job.layout->group());
      plan_.items.push_back({{tile, head, 0, 0, row}, unit, unit, 0});
    }
    PlannedItem& item = plan_.items[at->second];
    if (!added) plan_.units[item.last].next = unit;
    item.last = unit;
    item.cost += view.cost;
  }

  const CallView call_;
  const bool hopper_;
  const int64_t slots_;
  absl::flat_hash_map<std::tuple<const std::byte*, int32_t, int64_t>, size_t> index_;
  ItemPlan plan_;
};

}  // namespace

ForwardKind KindOf(const KernelJob& job) {
  const BlockLayout& layout = *job.layout;
  const int dim = std::max(layout.head_dim(), layout.value_dim());
  ForwardKind kind;
  kind.element = ElementOf(layout.dtype());
  kind.dim = dim <= 64 ? 64 : dim <= 128 ? 128 : kMaxDim;
  const ChangeRule change = ChangeRuleOf(job);
  kind.changes = change.cap != 0 || change.alibi || change.bias || change.bits || change.offset ||
                 change.drop_below != 0;
  return kind;
}

absl::StatusOr<std::vector<LaunchPieces>> CutCall(const KernelJob& job,
                                                  absl::Span<const KernelTask> tasks,
                                                  const CallVisibility& visible,
                                                  const CutRule& rule) {
  return CallCutter(job, tasks, visible, rule).Cut();
}

Launch MakeLaunch(const KernelJob& job, absl::Span<const KernelTask> tasks,
                  const CallVisibility& visible, const LaunchPieces& pieces, bool hopper,
                  int64_t cached_bytes) {
  TableImage image(job);
  Launch launch;
  for (const TaskPiece& piece : pieces) {
    image.AddTask(tasks[piece.task], piece, visible);
    if (!hopper) continue;
    launch.maps.push_back(KeyMap(job, tasks[piece.task]));
    launch.maps.push_back(ValueMap(job, tasks[piece.task]));
  }
  const int32_t heads =
      hopper ? HeadsAtOnce(job, tasks, cached_bytes) : std::numeric_limits<int32_t>::max();
  ItemPlanner planner({job, tasks, visible}, hopper);
  for (size_t p = 0; p < pieces.size(); ++p) planner.AddPiece(pieces, p);
  const ItemPlan plan = planner.Take(heads);
  std::vector<int32_t> units;
  for (const PlannedItem& item : plan.items) {
    units.clear();
    for (int32_t u = item.first; u >= 0; u = plan.units[u].next) {
      units.push_back(plan.units[u].piece);
      if (hopper) image.AddRuns(plan.runs[plan.units[u].runs]);
    }
    image.AddItem(item.item, units);
  }
  if (hopper) image.AddMaps(static_cast<int64_t>(launch.maps.size()));
  launch.blocks = static_cast<int64_t>(plan.items.size());
  launch.args = image.args();
  launch.bytes = image.Take(&launch.args.at);
  return launch;
}

}  // namespace annulus::cuda

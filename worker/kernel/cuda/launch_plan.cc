#include "worker/kernel/cuda/launch_plan.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "worker/kernel/cuda/hopper_plan.h"
#include "worker/kernel/cuda/table_image.h"
#include "worker/kernel/cuda/tile_views.h"

namespace annulus::cuda {
namespace {

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

#include "worker/kernel/cuda/sm90/hopper_gradient_plan.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "worker/kernel/cuda/launch/hopper_plan.h"
#include "worker/kernel/cuda/launch/table_image.h"
#include "worker/kernel/cuda/launch/tile_views.h"
#include "worker/kernel/cuda/sm80/gradient_launch.h"
#include "worker/kernel/cuda/sm90/hopper_gradient_config.h"

namespace annulus::cuda {
namespace {

int32_t Narrow(int64_t value) { return static_cast<int32_t>(value); }

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int32_t HeadsOf(const BlockView& view) { return view.block.head_end - view.block.head_begin; }

bool TaskServed(const KernelJob& job, const KernelTask& bound) {
  const BlockLayout& layout = *job.layout;
  const GradientTask more = GradientTaskOf(job, bound);
  const int64_t values = layout.SecondOffset(BlockKind::kKv, HeadsOf(bound.kv));
  return bound.out_bias.data == nullptr &&
         Aligned(BlockAtOf(layout, bound.q), more.d_out_offset, 16) &&
         Aligned(BlockAtOf(layout, bound.kv), values, 16) && Aligned(more.d_q, 0, 8) &&
         Aligned(more.d_kv, more.d_value_offset, 8);
}

const std::byte* OutOf(const KernelTask& bound, GradientSide side) {
  return side == GradientSide::kQueries ? bound.out_q.data : bound.out_kv.data;
}

// Query slots of a streamed tile of whole rows.
int64_t SlotsThatComeBy(const KernelJob& job) {
  const int group = job.layout->group();
  return int64_t{group} * RowsThatComeBy(HopperOthers(DimOf(*job.layout), false), group);
}

// The streamed tiles of a piece and head: runs of tiles for each own tile.
struct OwnTiles {
  int64_t first = 0;
  std::vector<std::vector<KeyTileRun>> runs;
};

class SidePlanner {
 public:
  struct Unit {
    int32_t piece;
    const std::vector<KeyTileRun>* runs;
  };
  struct Item {
    ForwardItem item;
    int64_t cost = 0;  // In tiles.
    std::vector<Unit> units;
  };

  SidePlanner(const CallView& call, const LaunchPieces& pieces, GradientSide side)
      : call_(call), side_(side), group_(call.job.layout->group()) {
    views_.reserve(pieces.size());
    for (size_t p = 0; p < pieces.size(); ++p) AddPiece(Narrow(static_cast<int64_t>(p)), pieces[p]);
    // Same order as in MakeLaunch: by groups of as many heads as fit the cache, and within a group
    // the most work first.
    const int32_t heads =
        HeadsAtOnce(call.job, call.tasks, kCachedBytes, side != GradientSide::kQueries);
    std::stable_sort(items_.begin(), items_.end(), [heads](const Item& a, const Item& b) {
      const int32_t turn = a.item.kv_head / heads, other = b.item.kv_head / heads;
      return turn != other ? turn < other : a.cost > b.cost;
    });
  }

  const std::vector<Item>& items() const { return items_; }

 private:
  void AddPiece(int32_t p, const TaskPiece& piece) {
    const KernelTask& bound = call_.tasks[piece.task];
    if (OutOf(bound, side_) == nullptr) return;
    const HeadRange heads = KvHeads(bound.task, group_);
    const std::vector<int32_t> alike = AlikeHeads(call_.job, bound.task);
    std::vector<OwnTiles>& views = views_.emplace_back(alike.size());
    for (int32_t head = heads.begin; head < heads.end; ++head) {
      const int32_t first = alike[head - heads.begin];
      OwnTiles& view = views[first - heads.begin];
      if (first == head)
        view = side_ == GradientSide::kQueries ? OfQueries(piece, head) : OfKeys(piece, head);
      for (size_t i = 0; i < view.runs.size(); ++i) {
        if (view.runs[i].empty()) continue;
        const int64_t tile = view.first + static_cast<int64_t>(i);
        AddUnit(OutOf(bound, side_), head, tile, {p, &view.runs[i]});
      }
    }
  }

  OwnTiles OfQueries(const TaskPiece& piece, int32_t head) const {
    const TileShape shape = {kOwnRows, HopperOthers(DimOf(*call_.job.layout), true)};
    const Interval tiles = TilesOf(piece.q_begin, piece.q_end, group_, shape.slots);
    OwnTiles own;
    own.first = tiles.begin;
    for (int64_t tile = tiles.begin; tile < tiles.end; ++tile)
      AddRunsOf(call_, piece, head, tile, shape, &own.runs.emplace_back());
    return own;
  }

  // Tiles of slots are streamed past the tiles of keys that they see. In a run that is not masked,
  // every slot sees all keys.
  OwnTiles OfKeys(const TaskPiece& piece, int32_t head) const {
    const TileShape shape = {SlotsThatComeBy(call_.job), kOwnRows};
    const Task& task = call_.tasks[piece.task].task;
    OwnTiles own;
    own.first = task.k_begin / kOwnRows;
    own.runs.resize(CeilDiv(task.k_end, kOwnRows) - own.first);
    const Interval tiles = TilesOf(piece.q_begin, piece.q_end, group_, shape.slots);
    std::vector<KeyTileRun> seen;
    for (auto tile = Narrow(tiles.begin); tile < tiles.end; ++tile) {
      seen.clear();
      const bool all_see = AddRunsOf(call_, piece, head, tile, shape, &seen);
      for (const KeyTileRun& keys : seen) {
        // A task with full coverage has no tables for the visible keys.
        const bool masked = task.coverage != Coverage::kFull && (keys.masked != 0 || !all_see);
        for (int64_t key = keys.begin; key < keys.end; ++key)
          AddTile(tile, masked ? 1 : 0, &own.runs[key - own.first]);
      }
    }
    return own;
  }
  static void AddTile(int32_t tile, int32_t masked, std::vector<KeyTileRun>* runs) {
    if (!runs->empty() && runs->back().end == tile && runs->back().masked == masked)
      runs->back().end = tile + 1;
    else
      runs->push_back({tile, tile + 1, masked});
  }

  void AddUnit(const std::byte* out, int32_t head, int64_t tile, const Unit& unit) {
    const auto [at, added] = index_.try_emplace(std::tuple(out, head, tile), items_.size());
    if (added) {
      Item& item = items_.emplace_back();
      item.item = {tile, head, 0, 0, 0};
      if (side_ == GradientSide::kQueries) item.item.first_row = Narrow(tile * kOwnRows / group_);
    }
    Item& item = items_[at->second];
    item.units.push_back(unit);
    for (const KeyTileRun& run : *unit.runs) item.cost += run.end - run.begin;
  }

  const CallView call_;
  const GradientSide side_;
  const int group_;
  std::vector<std::vector<OwnTiles>> views_;  // By piece and head; where runs are.
  absl::flat_hash_map<std::tuple<const std::byte*, int32_t, int64_t>, size_t> index_;
  std::vector<Item> items_;
};

}  // namespace

bool HopperServesGradients(const KernelJob& job, absl::Span<const KernelTask> tasks) {
  const int dim = DimOf(*job.layout);
  if (!IsOfHopper(job) || dim > kMaxGradientDim) return false;
  if (job.layout->group() > HopperOthers(dim, /*of_queries=*/false)) return false;
  return std::all_of(tasks.begin(), tasks.end(),
                     [&](const KernelTask& bound) { return TaskServed(job, bound); });
}

std::vector<TensorMapSpec> GradientMapsOf(const KernelJob& job, absl::Span<const KernelTask> tasks,
                                          GradientSide side) {
  const BlockLayout& layout = *job.layout;
  std::vector<TensorMapSpec> maps;
  for (const KernelTask& bound : tasks) {
    const Task& task = bound.task;
    const bool keys = side == GradientSide::kQueries;
    const BlockView& view = keys ? bound.kv : bound.q;
    const int32_t heads = HeadsOf(view);
    const Interval rows =
        keys ? Interval{task.k_begin, task.k_end} : Interval{task.q_begin, task.q_end};
    const int64_t second = layout.SecondOffset(keys ? BlockKind::kKv : BlockKind::kQGrad, heads);
    const BlockAt block = BlockAtOf(layout, view);
    const int others = HopperOthers(DimOf(layout), keys);
    const int box_rows = keys ? others : RowsThatComeBy(others, layout.group());
    maps.push_back(MapOfRows(block, rows, heads, 0, layout.head_dim(), box_rows));
    maps.push_back(MapOfRows(block, rows, heads, second, layout.value_dim(), box_rows));
    if (keys) continue;
    for (size_t m = maps.size() - 2; m < maps.size(); ++m) maps[m].box_heads = layout.group();
  }
  return maps;
}

HopperGradientLaunch MakeHopperGradients(const KernelJob& job, absl::Span<const KernelTask> tasks,
                                         const VisibleRows& visible, const LaunchPieces& pieces,
                                         GradientSide side, PlanMemory* memory) {
  TableImage image(job, memory->tables());
  std::vector<GradientTask> more;
  for (const TaskPiece& piece : pieces) {
    const KernelTask& bound = tasks[piece.task];
    image.AddTask(bound, piece, visible);
    more.push_back(GradientTaskOf(job, bound));
    more.back().map_row =
        Narrow(side == GradientSide::kQueries ? bound.task.k_begin : bound.task.q_begin);
  }
  const SidePlanner plan({job, tasks, visible}, pieces, side);
  std::vector<int32_t> units;
  for (const SidePlanner::Item& item : plan.items()) {
    units.clear();
    for (const SidePlanner::Unit& unit : item.units) {
      units.push_back(unit.piece);
      image.AddRuns(*unit.runs);
    }
    image.AddItem(item.item, units);
  }
  image.AddMaps(static_cast<int64_t>(pieces.size()) * kMapsOfTask);
  HopperGradientLaunch launch;
  launch.blocks = static_cast<int64_t>(plan.items().size());
  launch.args.forward = image.args();
  launch.bytes = std::move(memory->bytes);
  image.Take(&launch.args.forward.at, &launch.bytes);
  launch.args.tasks = AppendTable(more, &launch.bytes);
  return launch;
}

}  // namespace annulus::cuda

#include "worker/kernel/cuda/launch/launch_plan.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "worker/kernel/cuda/launch/hopper_config.h"
#include "worker/kernel/cuda/launch/hopper_plan.h"
#include "worker/kernel/cuda/launch/table_image.h"
#include "worker/kernel/cuda/launch/tile_views.h"

namespace annulus::cuda {
namespace {

struct PlannedUnit {
  int32_t piece;
  int32_t runs;  // Index in PlanMemory::Lists::runs of the first run.
  int32_t runs_end;
  int32_t next;  // The next unit of the same item; −1: none.
};

struct PlannedItem {
  ForwardItem item;
  int32_t first, last;  // Units of the item.
};

// The order in which items are taken: by groups of key/value heads, and within a group the largest
// first.
struct Turn {
  int32_t heads, item;
  int64_t cost;
  bool Before(const Turn& other) const {
    return heads != other.heads ? heads < other.heads : cost > other.cost;
  }
};

// A stable sort. It is fast if `turns` is a few sequences, each ascending or descending, as with
// the heads of a mask. There std::stable_sort takes two to three times as long, and allocates
// memory.
void SortTurns(std::vector<Turn>* turns, std::vector<Turn>* other) {
  std::vector<size_t> ends = {0};
  const auto at = turns->begin();
  for (size_t i = 0; i < turns->size(); ends.push_back(i)) {
    const size_t first = i++;
    if (i < turns->size() && at[i].Before(at[i - 1])) {
      while (i < turns->size() && at[i].Before(at[i - 1])) ++i;
      std::reverse(at + first, at + i);
    }
    while (i < turns->size() && !at[i].Before(at[i - 1])) ++i;
  }
  for (; ends.size() > 2; turns->swap(*other)) {
    other->resize(turns->size());
    std::vector<size_t> merged = {0};
    const auto from = turns->begin();
    for (size_t e = 0; e + 1 < ends.size(); e += 2) {
      const size_t middle = ends[e + 1], end = e + 2 < ends.size() ? ends[e + 2] : middle;
      std::merge(from + ends[e], from + middle, from + middle, from + end,
                 other->begin() + static_cast<int64_t>(ends[e]),
                 [](const Turn& a, const Turn& b) { return a.Before(b); });
      merged.push_back(end);
    }
    ends = std::move(merged);
  }
}

}  // namespace

// Items, each with its pieces in their order, and the order in which items are taken.
struct PlanMemory::Lists {
  std::vector<PlannedItem> items;
  std::vector<PlannedUnit> units;
  std::vector<KeyTileRun> runs;
  std::vector<int32_t> item_at;
  std::vector<Turn> turns, more_turns;
  TableLists tables;

  void Clear() {
    items.clear();
    units.clear();
    runs.clear();
    item_at.clear();
    turns.clear();
  }
};

PlanMemory::PlanMemory() : lists_(std::make_unique<Lists>()) {}
PlanMemory::~PlanMemory() = default;
TableLists* PlanMemory::tables() { return &lists_->tables; }

namespace {

class ItemPlanner {
 public:
  ItemPlanner(const CallView& call, const LaunchPieces& pieces, bool hopper, int32_t heads_at_once,
              PlanMemory::Lists* plan)
      : call_(call),
        pieces_(pieces),
        hopper_(hopper),
        slots_(SlotsOfTile(hopper)),
        group_(call.job.layout->group()),
        heads_at_once_(heads_at_once),
        plan_(*plan) {
    plan_.Clear();
    for (const TaskPiece& piece : pieces) FrameOf(piece).box.Add(HeadsOf(piece), TilesIn(piece));
    int64_t items = 0;
    for (auto& [out, frame] : frames_) {
      frame.first = items;
      items += (frame.box.heads.end - frame.box.heads.begin) * frame.box.tiles.length();
    }
    plan_.item_at.assign(items, -1);
  }

  void Plan() {
    for (size_t p = 0; p < pieces_.size(); ++p) AddPiece(static_cast<int32_t>(p));
    SortTurns(&plan_.turns, &plan_.more_turns);
  }

 private:
  struct View {
    int64_t cost;
    int32_t runs, runs_end;
  };
  // The bounding box of an accumulator's part of the launch: it maps to indexes in `item_at`.
  struct Frame {
    TileBox box;
    int64_t first = 0;

    int64_t At(int32_t head, int64_t tile) const {
      return first + (head - box.heads.begin) * box.tiles.length() + tile - box.tiles.begin;
    }
  };

  Frame& FrameOf(const TaskPiece& piece) { return frames_[call_.tasks[piece.task].out_q.data]; }
  HeadRange HeadsOf(const TaskPiece& piece) const {
    return KvHeads(call_.tasks[piece.task].task, group_);
  }
  Interval TilesIn(const TaskPiece& piece) const {
    return TilesOf(piece.q_begin, piece.q_end, group_, slots_);
  }

  void AddPiece(int32_t p) {
    const TaskPiece& piece = pieces_[p];
    const HeadRange heads = HeadsOf(piece);
    const Interval tiles = TilesIn(piece);
    const Frame& frame = FrameOf(piece);
    const std::vector<int32_t> alike = AlikeHeads(call_.job, call_.tasks[piece.task].task);
    std::vector<std::vector<View>> views(alike.size());
    for (int32_t head = heads.begin; head < heads.end; ++head) {
      const int32_t first = alike[head - heads.begin];
      if (first == head) views[head - heads.begin] = Look(piece, head, tiles);
      const std::vector<View>& seen = views[first - heads.begin];
      const int64_t at = frame.At(head, tiles.begin);
      const int32_t turn = head / heads_at_once_;
      for (int64_t i = 0; i < tiles.length(); ++i) {
        AddUnit({tiles.begin + i, head, 0, 0, 0}, turn, {p, seen[i].runs, seen[i].runs_end, -1},
                seen[i].cost, &plan_.item_at[at + i]);
      }
    }
  }

  std::vector<View> Look(const TaskPiece& piece, int32_t head, Interval tiles) {
    std::vector<View> views;
    views.reserve(tiles.length());
    for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
      const auto first = static_cast<int32_t>(plan_.runs.size());
      if (hopper_) AddRunsOf(call_, piece, head, tile, HopperTile(call_.job), &plan_.runs);
      views.push_back({CostOf(call_, piece, head, tile, slots_), first,
                       static_cast<int32_t>(plan_.runs.size())});
    }
    return views;
  }

  void AddUnit(ForwardItem item, int32_t turn, const PlannedUnit& unit, int64_t cost,
               int32_t* item_at) {
    const auto number = static_cast<int32_t>(plan_.units.size());
    plan_.units.push_back(unit);
    if (*item_at < 0) {
      *item_at = static_cast<int32_t>(plan_.items.size());
      item.first_row = static_cast<int32_t>(item.tile * slots_ / group_);
      plan_.items.push_back({item, number, number});
      plan_.turns.push_back({turn, *item_at, cost});
      return;
    }
    PlannedItem& known = plan_.items[*item_at];
    plan_.units[known.last].next = number;
    known.last = number;
    plan_.turns[*item_at].cost += cost;
  }

  const CallView call_;
  const LaunchPieces& pieces_;
  const bool hopper_;
  const int64_t slots_;
  const int group_;
  const int32_t heads_at_once_;
  absl::flat_hash_map<const std::byte*, Frame> frames_;
  PlanMemory::Lists& plan_;
};

void AddItems(const PlanMemory::Lists& plan, bool hopper, TableImage* image) {
  const absl::Span<const KeyTileRun> runs = plan.runs;
  std::vector<int32_t> pieces;
  for (const Turn& turn : plan.turns) {
    const PlannedItem& item = plan.items[turn.item];
    pieces.clear();
    for (int32_t u = item.first; u >= 0; u = plan.units[u].next) {
      const PlannedUnit& unit = plan.units[u];
      pieces.push_back(unit.piece);
      if (hopper) image->AddRuns(runs.subspan(unit.runs, unit.runs_end - unit.runs));
    }
    image->AddItem(item.item, pieces);
  }
}

}  // namespace

ForwardKind KindOf(const KernelJob& job) {
  ForwardKind kind;
  kind.element = ElementOf(job.layout->dtype());
  kind.dim = DimOf(*job.layout);
  const ChangeRule change = ChangeRuleOf(job);
  kind.changes = change.cap != 0 || change.alibi || change.bias || change.bits || change.offset ||
                 change.drop_below != 0;
  return kind;
}

int DimOf(const BlockLayout& layout) {
  const int dim = std::max(layout.head_dim(), layout.value_dim());
  return dim <= 64 ? 64 : dim <= 128 ? 128 : kMaxDim;
}

std::vector<TensorMapSpec> MapsOf(const KernelJob& job, absl::Span<const KernelTask> tasks) {
  std::vector<TensorMapSpec> maps;
  for (const KernelTask& bound : tasks) {
    maps.push_back(KeyMap(job, bound));
    maps.push_back(ValueMap(job, bound));
  }
  return maps;
}

Launch MakeLaunch(const KernelJob& job, absl::Span<const KernelTask> tasks,
                  const VisibleRows& visible, const LaunchPieces& pieces, PlanMemory* memory,
                  bool hopper, int64_t cached_bytes) {
  PlanMemory::Lists& plan = *memory->lists();
  TableImage image(job, memory->tables());
  for (const TaskPiece& piece : pieces) image.AddTask(tasks[piece.task], piece, visible);
  const int32_t heads =
      hopper ? HeadsAtOnce(job, tasks, cached_bytes) : std::numeric_limits<int32_t>::max();
  ItemPlanner({job, tasks, visible}, pieces, hopper, heads, &plan).Plan();
  AddItems(plan, hopper, &image);
  if (hopper) image.AddMaps(static_cast<int64_t>(pieces.size()) * kMapsOfTask);
  Launch launch;
  launch.blocks = static_cast<int64_t>(plan.items.size());
  launch.args = image.args();
  launch.bytes = std::move(memory->bytes);
  image.Take(&launch.args.at, &launch.bytes);
  return launch;
}

void PutMaps(absl::Span<const std::byte> encoded, const LaunchPieces& pieces, std::byte* to) {
  constexpr int64_t kBytes = kMapsOfTask * kMapBytes;
  for (const TaskPiece& piece : pieces) {
    std::memcpy(to, encoded.data() + piece.task * kBytes, kBytes);
    to += kBytes;
  }
}

}  // namespace annulus::cuda

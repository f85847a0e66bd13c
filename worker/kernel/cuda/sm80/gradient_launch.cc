#include "worker/kernel/cuda/sm80/gradient_launch.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "attention/sharding/shard_plan.h"
#include "worker/kernel/cuda/launch/table_image.h"
#include "worker/kernel/cuda/launch/tile_views.h"

namespace annulus::cuda {
namespace {

int32_t Narrow(int64_t value) { return static_cast<int32_t>(value); }

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// True if query heads share a row of the bias's gradient. Then blocks of different heads, and of
// tiles that share a row, write to the same addresses and may not be in one launch.
bool SharesBias(const KernelJob& job) {
  return job.layout->pairs().d_bias && job.layout->pairs().bias_heads == 1;
}

// Two tiles of slots at this distance have no row in common. It divides the tiles of a
// deterministic plan's granule, so that all its shards start with the same tiles.
int64_t TilesApart(int group) {
  if (kTileSlots % group == 0) return 1;
  const int64_t granule = int64_t{kFoldTile} * group / kTileSlots;
  int64_t apart = CeilDiv(group - 1, kTileSlots) + 1;
  while (granule % apart != 0) ++apart;
  return apart;
}

// The accumulators of one buffer: a group of blocks owns them.
struct Owner {
  TileBox box;
  std::vector<int32_t> units;

  void Add(int32_t unit, const HeadRange& heads, Interval tiles) {
    box.Add(heads, tiles);
    units.push_back(unit);
  }
};

// Owners in the order of the tasks that name them.
class Owners {
 public:
  Owner& Of(const std::byte* data) {
    const auto [at, added] = index_.try_emplace(data, list_.size());
    if (added) list_.emplace_back();
    return list_[at->second];
  }
  const std::vector<Owner>& list() const { return list_; }

 private:
  std::map<const std::byte*, size_t> index_;
  std::vector<Owner> list_;
};

class GridMaker {
 public:
  GridMaker(const KernelJob& job, absl::Span<const KernelTask> tasks, const LaunchPieces& pieces)
      : job_(job), group_(job.layout->group()) {
    for (size_t p = 0; p < pieces.size(); ++p)
      Add(Narrow(static_cast<int64_t>(p)), tasks, pieces[p]);
  }

  void Make() {
    const std::vector<int32_t> firsts = AddUnits(queries_.list());
    if (SharesBias(job_)) {
      for (size_t o = 0; o < firsts.size(); ++o) AddTurns(queries_.list()[o], firsts[o]);
    } else {
      // Under a causal mask, later rows see more keys and start first; so do earlier keys.
      for (size_t o = 0; o < firsts.size(); ++o) AddAll(queries_.list()[o], firsts[o], true);
      EndGrid(GradientSide::kQueries);
    }
    const std::vector<int32_t> of_keys = AddUnits(keys_.list());
    for (size_t o = 0; o < of_keys.size(); ++o) AddAll(keys_.list()[o], of_keys[o], false);
    const bool apart = DimOf(*job_.layout) > 128;
    EndGrid(apart ? GradientSide::kKeys : GradientSide::kKeysAndValues);
    if (!apart || of_keys.empty()) return;
    grids.push_back(grids.back());
    grids.back().side = GradientSide::kValues;
  }

  std::vector<int32_t> units;
  std::vector<GradientGroup> groups;
  std::vector<GradientGrid> grids;

 private:
  void Add(int32_t unit, absl::Span<const KernelTask> tasks, const TaskPiece& piece) {
    const KernelTask& bound = tasks[piece.task];
    const std::byte* const queries =
        bound.out_q.data != nullptr ? bound.out_q.data : bound.out_bias.data;
    const HeadRange heads = KvHeads(bound.task, group_);
    if (queries != nullptr) {
      queries_.Of(queries).Add(unit, heads,
                               TilesOf(piece.q_begin, piece.q_end, group_, kTileSlots));
    }
    if (bound.out_kv.data == nullptr) return;
    keys_.Of(bound.out_kv.data)
        .Add(unit, heads, {bound.task.k_begin / kTileKeys, CeilDiv(bound.task.k_end, kTileKeys)});
  }

  std::vector<int32_t> AddUnits(const std::vector<Owner>& owners) {
    std::vector<int32_t> firsts;
    for (const Owner& owner : owners) {
      firsts.push_back(Narrow(static_cast<int64_t>(units.size())));
      units.insert(units.end(), owner.units.begin(), owner.units.end());
    }
    return firsts;
  }

  void AddGroup(const Owner& owner, int32_t first_unit, GradientGroup group, int64_t tiles) {
    group.first_block = Narrow(blocks_);
    group.unit_begin = first_unit;
    group.unit_end = first_unit + Narrow(static_cast<int64_t>(owner.units.size()));
    groups.push_back(group);
    blocks_ += tiles * group.heads;
  }

  void AddAll(const Owner& owner, int32_t first_unit, bool backwards) {
    GradientGroup group = {};
    group.head_begin = owner.box.heads.begin;
    group.heads = owner.box.heads.end - owner.box.heads.begin;
    group.first_tile = Narrow(backwards ? owner.box.tiles.end - 1 : owner.box.tiles.begin);
    group.tile_step = backwards ? -1 : 1;
    AddGroup(owner, first_unit, group, owner.box.tiles.end - owner.box.tiles.begin);
  }

  // Adds one launch for each head and each set of tiles that are far enough apart.
  void AddTurns(const Owner& owner, int32_t first_unit) {
    const int64_t apart = TilesApart(group_);
    for (int32_t head = owner.box.heads.begin; head < owner.box.heads.end; ++head) {
      for (int64_t turn = 0; turn < apart; ++turn) {
        const int64_t first = CeilDiv(owner.box.tiles.begin - turn, apart) * apart + turn;
        if (first >= owner.box.tiles.end) continue;
        GradientGroup group = {};
        group.head_begin = head;
        group.heads = 1;
        group.first_tile = Narrow(first);
        group.tile_step = Narrow(apart);
        AddGroup(owner, first_unit, group, CeilDiv(owner.box.tiles.end - first, apart));
        EndGrid(GradientSide::kQueries);
      }
    }
  }

  void EndGrid(GradientSide side) {
    const auto end = static_cast<int32_t>(groups.size());
    if (end > ended_) grids.push_back({side, ended_, end - ended_, blocks_});
    ended_ = end;
    blocks_ = 0;
  }

  const KernelJob& job_;
  const int group_;
  Owners queries_, keys_;
  int64_t blocks_ = 0;  // Blocks of the current grid.
  int32_t ended_ = 0;   // Groups of finished grids.
};

// Appends, for each chunk of a piece, the hull of the keys that its rows see, over all heads.
void AddHulls(const KernelJob& job, const KernelTask& bound, const TaskPiece& piece,
              const VisibleRows& visible, std::vector<KeySpan32>* hulls) {
  for (int64_t begin = piece.q_begin; begin < piece.q_end;) {
    const int64_t end = std::min(piece.q_end, (begin / kChunkRows + 1) * kChunkRows);
    KeySpan32 hull = {std::numeric_limits<int32_t>::max(), 0};
    job.mask->ForEachClass(bound.task.head_begin, bound.task.head_end, [&](int32_t head, int32_t) {
      visible.ForEach(piece.task, head, {begin, end},
                      [&](Interval part, absl::Span<const Sweep> sweeps, int64_t skip) {
                        if (sweeps.empty()) return;
                        const Interval last = sweeps.back().At(skip + part.length() - 1);
                        hull.begin = std::min(hull.begin, Narrow(sweeps.front().At(skip).begin));
                        hull.end = std::max(hull.end, Narrow(last.end));
                      });
    });
    hulls->push_back(hull);
    begin = end;
  }
}

}  // namespace

int64_t TurnsOf(const KernelJob& job) {
  return SharesBias(job) ? job.spec->kv_heads * TilesApart(job.layout->group()) : 1;
}

GradientTask GradientTaskOf(const KernelJob& job, const KernelTask& bound) {
  const BlockLayout& layout = *job.layout;
  const auto heads = [](const BlockView& view) {
    return view.block.head_end - view.block.head_begin;
  };
  GradientTask task = {};
  if (bound.out_q.data != nullptr) task.d_q = BlockAtOf(layout, bound.out_q);
  if (bound.out_bias.data != nullptr) task.d_bias = BlockAtOf(layout, bound.out_bias);
  if (bound.out_kv.data != nullptr) {
    task.d_kv = BlockAtOf(layout, bound.out_kv);
    task.d_value_offset = layout.SecondOffset(BlockKind::kDkv, heads(bound.out_kv));
  }
  task.d_out_offset = layout.SecondOffset(BlockKind::kQGrad, heads(bound.q));
  task.lse_offset = layout.ThirdOffset(BlockKind::kQGrad, heads(bound.q));
  task.lse_rest_offset = layout.lse_rest(BlockKind::kQGrad)
                             ? layout.FifthOffset(BlockKind::kQGrad, heads(bound.q))
                             : -1;
  task.delta_offset = layout.FourthOffset(BlockKind::kQGrad, heads(bound.q));
  task.d_out_whole = IsWhole(BlockAtOf(layout, bound.q), task.d_out_offset,
                             layout.value_dim() * BytesPerElement(layout.dtype()));
  task.hull_at = -1;
  return task;
}

absl::StatusOr<std::vector<LaunchPieces>> CutGradients(const KernelJob& job,
                                                       absl::Span<const KernelTask> tasks,
                                                       const VisibleRows& visible,
                                                       int64_t max_bytes, double max_work) {
  // A task has one unit for queries and one for keys, and may be alone in its groups.
  LaunchSplitRule rule;
  rule.max_bytes = max_bytes;
  rule.more_of_task = static_cast<int64_t>(sizeof(GradientTask) + 2 * sizeof(int32_t)) +
                      (TurnsOf(job) + 1) * static_cast<int64_t>(sizeof(GradientGroup)) +
                      4 * 16;  // Four more tables begin at multiples of 16.
  rule.whole_chunks = true;
  rule.max_work = max_work;
  return SplitLaunches(job, tasks, visible, rule);
}

GradientArgs GradientLaunch::ArgsOf(const GradientGrid& grid) const {
  GradientArgs of_grid = args;
  of_grid.groups += grid.first_group * static_cast<int64_t>(sizeof(GradientGroup));
  of_grid.group_count = grid.groups;
  return of_grid;
}

GradientLaunch MakeGradientLaunch(const KernelJob& job, absl::Span<const KernelTask> tasks,
                                  const VisibleRows& visible, const LaunchPieces& pieces,
                                  PlanMemory* memory) {
  TableImage image(job, memory->tables());
  std::vector<GradientTask> more;
  std::vector<KeySpan32> hulls;
  for (const TaskPiece& piece : pieces) {
    const KernelTask& bound = tasks[piece.task];
    image.AddTask(bound, piece, visible);
    more.push_back(GradientTaskOf(job, bound));
    if (bound.task.coverage == Coverage::kFull) continue;
    more.back().hull_at = Narrow(static_cast<int64_t>(hulls.size()));
    AddHulls(job, bound, piece, visible, &hulls);
  }
  GridMaker grids(job, tasks, pieces);
  grids.Make();
  GradientLaunch launch;
  launch.grids = std::move(grids.grids);
  launch.bytes = std::move(memory->bytes);
  GradientArgs& args = launch.args;
  args.forward = image.args();
  image.Take(&args.forward.at, &launch.bytes);
  args.tasks = AppendTable(more, &launch.bytes);
  args.hulls = AppendTable(hulls, &launch.bytes);
  args.units = AppendTable(grids.units, &launch.bytes);
  args.groups = AppendTable(grids.groups, &launch.bytes);
  args.kept = job.spec->dropout ? static_cast<float>(1 / (1 - job.spec->dropout->rate)) : 1.0f;
  const BiasAndMaskInputs& pairs = job.layout->pairs();
  args.d_bias = pairs.d_bias;
  args.d_bias_per_head = pairs.bias_heads != 1;
  args.d_bias_bytes = pairs.width * 4;
  return launch;
}

}  // namespace annulus::cuda

#include "worker/kernel/cpu/call_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "attention/sharding/shard_plan.h"
#include "worker/kernel/cpu/isa/tile_isa.h"
#include "worker/kernel/cpu/item_order.h"
#include "worker/kernel/cpu/tile_visibility.h"

namespace annulus {
namespace {

// So every plan has the same blocks in a deterministic job.
static_assert(kFoldTile % kKeyBlock == 0);

// Cuts the call's tasks into phases for one range of heads.
class PhaseBuilder {
 public:
  PhaseBuilder(const CallPlan& plan, const TileVisibility& hulls, HeadRange heads,
               int64_t max_packs, const KernelControl& control)
      : plan_(plan), hulls_(hulls), heads_(heads), max_packs_(max_packs), control_(control) {
    Reset();
  }

  void AddTask(int32_t index);
  std::vector<Phase> Take();

 private:
  void Reset();
  void Flush();
  // Packed blocks that the phase lacks to hold [begin, end) of `source`.
  int64_t Growth(int32_t source, int64_t begin, int64_t end) const;
  void AddUnit(int32_t task, int64_t begin, int64_t end, bool first, bool last);
  void MakeItems(Phase& phase) const;

  const CallPlan& plan_;
  const TileVisibility& hulls_;
  const HeadRange heads_;
  const int64_t max_packs_;
  const KernelControl& control_;
  Phase phase_;
  std::vector<int32_t> packed_of_source_;
  int64_t used_ = 0;
  std::vector<Phase> phases_;
};

void PhaseBuilder::Reset() {
  phase_ = Phase();
  phase_.head_begin = heads_.begin;
  phase_.head_end = heads_.end;
  packed_of_source_.assign(plan_.sources.size(), -1);
  used_ = 0;
}

int64_t PhaseBuilder::Growth(int32_t source, int64_t begin, int64_t end) const {
  const int64_t heads = heads_.end - heads_.begin;
  const int32_t packed = packed_of_source_[source];
  if (packed < 0) return (end - begin) * heads;
  const PackedSource& p = phase_.packed[packed];
  const int64_t hull = std::max(end, p.block_end) - std::min(begin, p.block_begin);
  return (hull - (p.block_end - p.block_begin)) * heads;
}

void PhaseBuilder::AddUnit(int32_t task, int64_t begin, int64_t end, bool first, bool last) {
  const int32_t source = plan_.source_of_task[task];
  used_ += Growth(source, begin, end);
  int32_t& packed = packed_of_source_[source];
  if (packed < 0) {
    packed = static_cast<int32_t>(phase_.packed.size());
    phase_.packed.push_back({source, begin, end, 0});
  }
  PackedSource& p = phase_.packed[packed];
  p.block_begin = std::min(p.block_begin, begin);
  p.block_end = std::max(p.block_end, end);
  phase_.units.push_back({task, packed, begin, end, first, last});
}

void PhaseBuilder::AddTask(int32_t index) {
  const Task& task = plan_.tasks[index].task;
  const HeadRange heads = KvHeads(task, plan_.group);
  if (heads.begin >= heads_.end || heads.end <= heads_.begin) return;
  const int32_t source = plan_.source_of_task[index];
  const int64_t first = task.k_begin / kKeyBlock, end = CeilDiv(task.k_end, kKeyBlock);
  for (int64_t begin = first; begin < end;) {
    int64_t until = end;
    while (until > begin && used_ + Growth(source, begin, until) > max_packs_) {
      const int64_t over = used_ + Growth(source, begin, until) - max_packs_;
      until -= std::max<int64_t>(1, over / (heads_.end - heads_.begin));
    }
    if (until <= begin) {
      if (!phase_.units.empty()) {
        Flush();
        continue;
      }
      until = begin + 1;
    }
    AddUnit(index, begin, until, begin == first, until == end);
    begin = until;
  }
}

// Visible (row, key) pairs of a unit's rows in `tile`, for head `q_head`.
int64_t Cost(const CallPlan& plan, const Unit& unit, int64_t tile, int32_t q_head) {
  const Task& task = plan.tasks[unit.task].task;
  const Interval keys{unit.block_begin * kKeyBlock, unit.block_end * kKeyBlock};
  int64_t pairs = 0;
  for (int64_t row = FirstRow(plan, task, tile); row < EndRow(plan, task, tile); ++row)
    for (const Interval& span : plan.visible->Of(unit.task, q_head, row))
      pairs += Intersect(span, keys).length();
  return pairs;
}

// True if rows of a tile begin or end with the unit, whatever they see.
bool BeginsOrEnds(const CallPlan& plan, const Unit& unit, int64_t tile) {
  const Task& task = plan.tasks[unit.task].task;
  const Interval rows{FirstRow(plan, task, tile), EndRow(plan, task, tile)};
  return (unit.first && Intersect(rows, task.begins).length() > 0) ||
         (unit.last && Intersect(rows, task.ends).length() > 0);
}

// Cost() for all tiles of the unit's task.
std::vector<int64_t> Costs(const CallPlan& plan, const Unit& unit,
                           const std::vector<TileVisibleKeys>& hulls, int32_t q_head) {
  const int64_t first = FirstTile(plan.tasks[unit.task].task, plan.group);
  const Interval keys{unit.block_begin * kKeyBlock, unit.block_end * kKeyBlock};
  std::vector<int64_t> costs(hulls.size(), 0);
  for (size_t t = 0; t < hulls.size(); ++t) {
    const Interval seen = Intersect(hulls[t].hull, keys);
    if (seen.length() == 0) continue;
    costs[t] = seen == hulls[t].hull ? hulls[t].pairs
                                     : Cost(plan, unit, first + static_cast<int64_t>(t), q_head);
  }
  return costs;
}

void PhaseBuilder::MakeItems(Phase& phase) const {
  std::map<std::tuple<const std::byte*, int32_t, int64_t>, size_t> index;
  for (size_t u = 0; u < phase.units.size() && !Stopped(control_); ++u) {
    const Unit& unit = phase.units[u];
    const KernelTask& bound = plan_.tasks[unit.task];
    const HeadRange own = KvHeads(bound.task, plan_.group);
    const int64_t first = FirstTile(bound.task, plan_.group);
    const size_t tiles = EndTile(bound.task, plan_.group) - first;
    const MaskMap& mask = plan_.visible->mask();
    std::vector<std::vector<int64_t>> costs(mask.classes());  // Counted once per class.
    for (int32_t head = std::max(own.begin, heads_.begin); head < std::min(own.end, heads_.end);
         ++head) {
      std::vector<int64_t> cost(tiles, 0);
      mask.ForEachClass(std::max(head * plan_.group, bound.task.head_begin),
                        std::min((head + 1) * plan_.group, bound.task.head_end),
                        [&](int32_t q_head, int32_t count) {
                          const int32_t head_class = mask.ClassOf(q_head);
                          std::vector<int64_t>& of_class = costs[head_class];
                          if (of_class.empty())
                            of_class = Costs(plan_, unit, hulls_.Of(unit.task, head_class), q_head);
                          for (size_t t = 0; t < of_class.size(); ++t)
                            cost[t] += of_class[t] * count;
                        });
      for (size_t t = 0; t < tiles; ++t) {
        const int64_t tile = first + static_cast<int64_t>(t);
        if (cost[t] == 0 && !BeginsOrEnds(plan_, unit, tile)) continue;
        const auto [at, added] =
            index.try_emplace({bound.out_q.data, head, tile}, phase.items.size());
        if (added) phase.items.push_back({head, tile, {}, 0});
        phase.items[at->second].units.push_back(static_cast<int32_t>(u));
        phase.items[at->second].cost += cost[t];
      }
    }
  }
}

void PhaseBuilder::Flush() {
  if (phase_.units.empty()) return;
  for (PackedSource& p : phase_.packed) {
    p.first_pack = phase_.packs;
    phase_.packs += (p.block_end - p.block_begin) * (heads_.end - heads_.begin);
  }
  MakeItems(phase_);
  if (!phase_.items.empty()) phases_.push_back(std::move(phase_));
  Reset();
}

std::vector<Phase> PhaseBuilder::Take() {
  Flush();
  return std::move(phases_);
}

// Key/value heads of a phase: all if they fit, otherwise as many as fit, but enough to keep the
// threads busy.
int64_t HeadsOfPhase(const CallPlan& plan, HeadRange all, const PhaseLimits& limits) {
  int64_t blocks = 0, tiles = 0;
  for (const KeySource& source : plan.sources)
    for (const Interval& rows : source.rows)
      blocks += CeilDiv(rows.end, kKeyBlock) - rows.begin / kKeyBlock;
  for (const KernelTask& bound : plan.tasks)
    tiles = std::max(tiles, EndTile(bound.task, plan.group) - FirstTile(bound.task, plan.group));
  const int64_t fit = limits.max_packs / std::max<int64_t>(1, blocks);
  const int64_t busy = CeilDiv(4 * limits.threads, std::max<int64_t>(1, tiles));
  return std::clamp<int64_t>(std::max(fit, busy), 1, all.end - all.begin);
}

}  // namespace

CallPlan PlanCall(absl::Span<const KernelTask> tasks, const CallVisibility& visible, int group) {
  CallPlan plan;
  plan.tasks = tasks;
  plan.visible = &visible;
  plan.group = group;
  std::map<const std::byte*, int32_t> index;
  for (const KernelTask& bound : tasks) {
    const auto [at, added] =
        index.try_emplace(bound.kv.data, static_cast<int32_t>(plan.sources.size()));
    const HeadRange heads = KvHeads(bound.task, group);
    if (added) plan.sources.push_back({&bound.kv, {}, heads.begin, heads.end});
    KeySource& source = plan.sources[at->second];
    source.rows.push_back({bound.task.k_begin, bound.task.k_end});
    source.rows = Normalized(std::move(source.rows));
    source.head_begin = std::min(source.head_begin, heads.begin);
    source.head_end = std::max(source.head_end, heads.end);
    plan.source_of_task.push_back(at->second);
  }
  return plan;
}

std::vector<Phase> PlanPhases(const CallPlan& plan, const PhaseLimits& limits,
                              const KernelControl& control) {
  std::vector<Phase> phases;
  if (plan.tasks.empty()) return phases;
  HeadRange all = KvHeads(plan.tasks[0].task, plan.group);
  for (const KernelTask& bound : plan.tasks) {
    const HeadRange own = KvHeads(bound.task, plan.group);
    all = {std::min(all.begin, own.begin), std::max(all.end, own.end)};
  }
  const TileVisibility hulls(plan, control);
  const int64_t kept = limits.passing ? 1 : BlocksToKeep(plan, hulls, limits);
  const int64_t max_packs = kept > 0 ? std::numeric_limits<int64_t>::max() : limits.max_packs;
  const int64_t step = kept > 0 ? all.end - all.begin : HeadsOfPhase(plan, all, limits);
  for (int64_t head = all.begin; head < all.end; head += step) {
    const HeadRange heads{static_cast<int32_t>(head),
                          static_cast<int32_t>(std::min<int64_t>(all.end, head + step))};
    PhaseBuilder builder(plan, hulls, heads, max_packs, control);
    for (size_t t = 0; t < plan.tasks.size(); ++t) builder.AddTask(static_cast<int32_t>(t));
    for (Phase& phase : builder.Take()) {
      phase.kept = kept;
      OrderItems(limits, &phase);
      phases.push_back(std::move(phase));
    }
  }
  return phases;
}

int64_t LargestPhase(const std::vector<Phase>& phases) {
  int64_t packs = 0;
  for (const Phase& phase : phases) {
    if (phase.kept == 0) packs = std::max(packs, phase.packs);
  }
  return packs;
}

int64_t MostKept(const std::vector<Phase>& phases) {
  int64_t kept = 0;
  for (const Phase& phase : phases) kept = std::max(kept, phase.kept);
  return kept;
}

}  // namespace annulus

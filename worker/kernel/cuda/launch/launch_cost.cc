#include "worker/kernel/cuda/launch/launch_cost.h"

#include <algorithm>

#include "worker/kernel/cuda/launch/hopper_config.h"
#include "worker/kernel/cuda/launch/launch_plan.h"
#include "worker/kernel/cuda/launch/table_image.h"

namespace annulus::cuda {
namespace {

// Cost of any thread instruction, FMA included.
constexpr double kInstruction = 16;
// Approximate instructions for a pair in one pass: those of every score (a scale, an exponential,
// sums), and those that a ChangeRule adds. Dropout costs half a Philox4x32-10, since two
// neighbouring keys of a thread share one. A pass over keys has neighbouring queries, which share
// none.
constexpr double kWeigh = 8, kChange = 16, kCap = 40, kDrop = 64, kBiasGradient = 16;

// Slots that run at once on the multiprocessors of a large GPU: 128 of them, with two blocks each.
constexpr int64_t kBusySlots = int64_t{256} * kTileSlots;
// Rows of the smallest piece of a task, which has all of the task's heads.
constexpr int64_t kLeastRows = kHopperSlots;
// In keys: a multiple of every kernel's tile.
constexpr int64_t kTiles = 768;
// An upper bound for the keys of the tiles at both ends of a span.
constexpr int64_t kTileEnds = 256;

// `first`: products over the query dimensions; `second`: over the value dimensions.
struct Pass {
  int first, second;
};

double Instructions(const KernelJob& job, double drop) {
  const ChangeRule change = ChangeRuleOf(job);
  double instructions = kWeigh;
  if (KindOf(job).changes) instructions += kChange;
  if (change.cap != 0) instructions += kCap;
  if (change.drop_below != 0) instructions += drop;
  return instructions;
}

double CostOf(const KernelJob& job, const Pass& pass, double instructions) {
  const double rate = job.layout->dtype() == DataType::kFp32 ? kInstruction : 1;
  return rate * (pass.first * job.layout->head_dim() + pass.second * job.layout->value_dim()) +
         kInstruction * instructions;
}

// Keys that a row sees and the row before it does not, for all rows but the first. The first row
// sees sweeps[i].At(skip). For a span that is all new, also the tiles at its ends.
int64_t NewKeys(Interval rows, absl::Span<const Sweep> sweeps, int64_t skip) {
  int64_t keys = 0;
  for (const Sweep& sweep : sweeps) {
    const bool jumps = sweep.begin_step == 1 && sweep.end_step == 1 && sweep.At(skip).length() == 1;
    keys += (rows.length() - 1) * (sweep.end_step + (jumps ? kTileEnds : 0));
  }
  return keys;
}

// The same for one row.
int64_t NewKeys(absl::Span<const Interval> now, absl::Span<const Interval> before) {
  int64_t keys = 0;
  for (const Interval& span : now) {
    int64_t fresh = span.length();
    for (const Interval& old : before) fresh -= Intersect(span, old).length();
    keys += fresh < span.length() ? fresh : fresh + kTileEnds;
  }
  return keys;
}

// The limit for the keys of a task that a tile of rows sees.
int64_t MostKeys(const PairCost& cost, const KernelTask& bound, const LongKeysRule& rule) {
  const int64_t heads = bound.task.head_end - bound.task.head_begin;
  const int64_t slots = std::max(kBusySlots * rule.turns, kLeastRows * heads);
  const double keys = rule.max_work / (static_cast<double>(slots) * cost.Of(bound));
  return std::max<int64_t>(1, static_cast<int64_t>(std::min(keys, 1e15)) / kTiles) * kTiles;
}

bool IsLong(const CallView& call, int32_t index, int64_t most) {
  const Task& task = call.tasks[index].task;
  if (task.k_end - task.k_begin <= most) return false;
  for (int64_t row = task.q_begin; row < task.q_end; row += kChunkRows) {
    if (VisibleKeys(call, index, {row, std::min(row + kChunkRows, task.q_end)}) > most) return true;
  }
  return false;
}

void AddParts(const KernelTask& bound, int64_t most, std::vector<KernelTask>* parts) {
  for (int64_t begin = bound.task.k_begin; begin < bound.task.k_end;) {
    const bool rest = bound.task.k_end - begin <= most;
    const int64_t end = rest ? bound.task.k_end : (begin / most + 1) * most;
    parts->push_back(bound);
    parts->back().task.k_begin = begin;
    parts->back().task.k_end = end;
    begin = end;
  }
}

}  // namespace

PairCost::PairCost(const KernelJob& job) {
  const double weigh = Instructions(job, kDrop), weigh_keys = Instructions(job, 2 * kDrop);
  attention_ = CostOf(job, {1, 1}, weigh);
  // Scores, dO·v, dQ.
  of_queries_ = CostOf(job, {2, 1}, weigh + (job.layout->pairs().d_bias ? kBiasGradient : 0));
  // Scores, dO·v, dK, dV. In two passes, scores are computed twice.
  of_keys_ = DimOf(*job.layout) > 128
                 ? CostOf(job, {2, 1}, weigh_keys) + CostOf(job, {1, 1}, weigh_keys)
                 : CostOf(job, {2, 2}, weigh_keys);
}

double PairCost::Of(const KernelTask& bound) const {
  if (bound.q.block.kind != BlockKind::kQGrad) return attention_;
  const bool queries = bound.out_q.data != nullptr || bound.out_bias.data != nullptr;
  return (queries ? of_queries_ : 0) + (bound.out_kv.data != nullptr ? of_keys_ : 0);
}

int64_t VisibleKeys(const CallView& call, int32_t index, Interval rows) {
  const Task& task = call.tasks[index].task;
  const int64_t all = task.k_end - task.k_begin;
  if (task.coverage == Coverage::kFull) return all;
  int64_t keys = 0;
  call.job.mask->ForEachClass(task.head_begin, task.head_end, [&](int32_t head, int32_t) {
    Intervals now, before;
    const auto see = [](absl::Span<const Sweep> sweeps, int64_t row, Intervals* keys_of_row) {
      keys_of_row->clear();
      for (const Sweep& sweep : sweeps) keys_of_row->push_back(sweep.At(row));
    };
    call.visible.ForEach(index, head, rows,
                         [&](Interval part, absl::Span<const Sweep> sweeps, int64_t skip) {
                           if (keys >= all) return;
                           see(sweeps, skip, &now);
                           keys += NewKeys(now, before) + NewKeys(part, sweeps, skip);
                           see(sweeps, skip + part.length() - 1, &before);
                         });
  });
  return std::min(keys, all);
}

std::vector<KernelTask> CutLongKeys(const CallView& call, const LongKeysRule& rule) {
  const PairCost cost(call.job);
  std::vector<KernelTask> cut;
  bool any = false;
  for (size_t t = 0; t < call.tasks.size(); ++t) {
    const KernelTask& bound = call.tasks[t];
    const int64_t most = MostKeys(cost, bound, rule);
    if (!IsLong(call, static_cast<int32_t>(t), most)) {
      if (any) cut.push_back(bound);
      continue;
    }
    if (!any) cut.assign(call.tasks.begin(), call.tasks.begin() + t);
    any = true;
    AddParts(bound, most, &cut);
  }
  return cut;
}

}  // namespace annulus::cuda

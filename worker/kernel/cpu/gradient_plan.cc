#include "worker/kernel/cpu/gradient_plan.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "attention/spec/interval.h"
#include "worker/kernel/cpu/visible_blocks.h"

namespace annulus {
namespace {

// Items that are dealt into rounds at once: the memory limit of a plan.
constexpr int64_t kItemsAtOnce = 1 << 16;
// Tiles of a stripe, and items that a thread should have in a round. The other threads wait for the
// last item.
constexpr int64_t kMostStripeTiles = 16, kLeastStripeTiles = 4;
constexpr int64_t kItemsOfThread = 4;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Deals items into rounds: each into the first round after all items that write to the same rows.
class Rounds {
 public:
  explicit Rounds(absl::Span<const KernelTask> tasks) : tasks_(tasks) {}

  void Add(const GradientItem& item) {
    const KernelTask& bound = tasks_[item.task];
    int32_t none = 0;
    int32_t& keys = bound.out_kv.data == nullptr
                        ? none
                        : free_from_[{bound.out_kv.data, item.kv_head, item.key_block}];
    int32_t other = 0;
    int32_t& queries = bound.out_q.data == nullptr
                           ? other
                           : free_from_[{bound.out_q.data, item.kv_head, item.stripe}];
    int32_t third = 0;
    int32_t& biases = !OfOneHead(bound.out_bias)
                          ? third
                          : free_from_[{bound.out_bias.data, bound.kv.block.shard, item.key_block}];
    const int32_t round = std::max({keys, queries, biases});
    keys = queries = biases = round + 1;
    if (round >= static_cast<int32_t>(rounds_.size())) rounds_.resize(round + 1);
    rounds_[round].push_back(item);
    ++items_;
  }

  bool full() const { return items_ >= kItemsAtOnce; }

  bool Run(absl::FunctionRef<bool(absl::Span<const GradientItem>)> run) {
    for (const std::vector<GradientItem>& round : rounds_) {
      if (!run(round)) return false;
    }
    rounds_.clear();
    free_from_.clear();
    items_ = 0;
    return true;
  }

 private:
  // True if the bias may be shared by all query heads. Then items of different heads and stripes
  // write to its rows.
  static bool OfOneHead(const BlockView& bias) {
    return bias.data != nullptr && bias.block.head_end - bias.block.head_begin == 1;
  }

  absl::Span<const KernelTask> tasks_;
  // (accumulator, key/value head, key block or stripe) → the first round in which it is free. For
  // gradients of a bias the key is (accumulator, shard of the keys, key block).
  std::map<std::tuple<const std::byte*, int32_t, int64_t>, int32_t> free_from_;
  std::vector<std::vector<GradientItem>> rounds_;
  int64_t items_ = 0;
};

// Key blocks × stripes of one task. Cells with no visible pair are never looked at.
class TaskGrid {
 public:
  TaskGrid(absl::Span<const KernelTask> tasks, int32_t task, const CallVisibility& visible,
           const GradientRounds& shape, const KernelControl& control)
      : task_(tasks[task].task),
        number_(task),
        mask_(visible.mask()),
        group_(shape.group),
        in_order_(shape.in_order),
        first_block_(task_.k_begin / kKeyBlock),
        blocks_(CeilDiv(task_.k_end, kKeyBlock) - first_block_),
        first_stripe_(task_.q_begin * group_ / shape.stripe_slots),
        stripes_(CeilDiv(task_.q_end * group_, shape.stripe_slots) - first_stripe_) {
    Look(visible, shape, control);
    for (int64_t stripe = 0; stripe < stripes_; ++stripe) AddLines(stripe);
  }

  bool Deal(Rounds* rounds, absl::FunctionRef<bool(absl::Span<const GradientItem>)> run) {
    return lines_.ForEach(
        in_order_ ? blocks_ : std::max(blocks_, stripes_),
        [&](int64_t line, int64_t stripe) { AddHeads(BlockOn(line, stripe), stripe, rounds); },
        [&](int64_t) { return !rounds->full() || rounds->Run(run); });
  }

 private:
  bool tall() const { return blocks_ >= stripes_; }

  // Finds the blocks that heads see: one entry for all heads if the task is full, otherwise one for
  // each class of heads.
  void Look(const CallVisibility& visible, const GradientRounds& shape,
            const KernelControl& control) {
    std::vector<Interval> stripes;
    for (int64_t stripe = first_stripe_; stripe < first_stripe_ + stripes_; ++stripe) {
      stripes.push_back(
          {std::max(task_.q_begin, stripe * shape.stripe_slots / group_),
           std::min(task_.q_end, CeilDiv((stripe + 1) * shape.stripe_slots, group_))});
    }
    slot_of_class_.assign(mask_.classes(), 0);
    mask_.ForEachClass(task_.head_begin, task_.head_end, [&](int32_t head, int32_t) {
      if (task_.coverage == Coverage::kFull && !seen_.empty()) return;
      slot_of_class_[mask_.ClassOf(head)] = static_cast<int32_t>(seen_.size());
      seen_.emplace_back(
          stripes, [&](int64_t row) { return visible.Of(number_, head, row); }, control);
    });
  }

  // A line is a block of keys if items go in order. Otherwise it is a diagonal, so that neighbours
  // in the list may run at the same time. A diagonal is the cells (i, (i + line) mod longer side),
  // with i along the shorter side.
  void AddLines(int64_t stripe) {
    std::vector<Interval> seen;  // Seen by any head.
    for (const VisibleBlocks& one : seen_) {
      const absl::Span<const Interval> blocks = one.Of(stripe);
      seen.insert(seen.end(), blocks.begin(), blocks.end());
    }
    for (const Interval& at : Normalized(std::move(seen))) {
      const Interval blocks{at.begin - first_block_, at.end - first_block_};
      if (in_order_) {
        lines_.Add(stripe, blocks);
      } else if (tall()) {
        AddDiagonals(stripe, {blocks.begin - stripe, blocks.end - stripe}, blocks_);
      } else {
        AddDiagonals(stripe, {stripe - blocks.end + 1, stripe - blocks.begin + 1}, stripes_);
      }
    }
  }

  // Lines below 0 wrap around to the end.
  void AddDiagonals(int64_t stripe, Interval lines, int64_t all) {
    lines_.Add(stripe, {std::max<int64_t>(0, lines.begin), lines.end});
    lines_.Add(stripe, {lines.begin + all, std::min<int64_t>(0, lines.end) + all});
  }

  int64_t BlockOn(int64_t line, int64_t stripe) const {
    if (in_order_) return line;
    return tall() ? (stripe + line) % blocks_ : (stripe - line + stripes_) % stripes_;
  }

  void AddHeads(int64_t block, int64_t stripe, Rounds* rounds) const {
    const int32_t end = static_cast<int32_t>(CeilDiv(task_.head_end, group_));
    for (int32_t head = task_.head_begin / group_; head < end; ++head) {
      if (AnySees(block + first_block_, stripe, head))
        rounds->Add({number_, head, block + first_block_, stripe + first_stripe_});
    }
  }

  bool AnySees(int64_t block, int64_t stripe, int32_t kv_head) const {
    const int32_t begin = std::max(kv_head * group_, task_.head_begin);
    const int32_t end = std::min((kv_head + 1) * group_, task_.head_end);
    for (int32_t head = begin; head < end; ++head) {
      if (seen_[slot_of_class_[mask_.ClassOf(head)]].Has(stripe, block)) return true;
    }
    return false;
  }

  const Task& task_;
  const int32_t number_;
  const MaskMap& mask_;
  const int group_;
  const bool in_order_;
  // Blocks and stripes of the grid count from first_block_ and first_stripe_.
  const int64_t first_block_, blocks_, first_stripe_, stripes_;
  std::vector<int32_t> slot_of_class_;
  std::vector<VisibleBlocks> seen_;
  CellLines lines_;
};

// An upper bound of the items of the longest round.
int64_t ItemsAtOnce(absl::Span<const KernelTask> tasks, int group, int64_t stripe_slots) {
  int64_t most = 0;
  for (const KernelTask& bound : tasks) {
    const Task& task = bound.task;
    const int64_t blocks = CeilDiv(task.k_end - task.k_begin, kKeyBlock);
    const int64_t stripes = CeilDiv((task.q_end - task.q_begin) * group, stripe_slots);
    const int64_t heads = CeilDiv(task.head_end - task.head_begin, group);
    most = std::max(most, heads * std::min(blocks, stripes));
  }
  return most;
}

}  // namespace

GradientRounds RoundsOf(const KernelJob& job, absl::Span<const KernelTask> tasks, int threads) {
  const int group = job.layout->group();
  if (job.spec->deterministic) return {group, kFoldTile * group, true};
  int64_t tiles = kMostStripeTiles;
  while (tiles > kLeastStripeTiles &&
         ItemsAtOnce(tasks, group, tiles * kTileRows) < kItemsOfThread * threads) {
    tiles /= 2;
  }
  return {group, tiles * kTileRows, false};
}

void ForEachRound(absl::Span<const KernelTask> tasks, const CallVisibility& visible,
                  const GradientRounds& shape, const KernelControl& control,
                  absl::FunctionRef<bool(absl::Span<const GradientItem>)> run) {
  Rounds rounds(tasks);
  for (size_t t = 0; t < tasks.size(); ++t) {
    TaskGrid grid(tasks, static_cast<int32_t>(t), visible, shape, control);
    if (control.stopped()) return;
    if (!grid.Deal(&rounds, run)) return;
  }
  rounds.Run(run);
}

}  // namespace annulus

#include "worker/kernel/gradient_plan.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "attention/shard_plan.h"

namespace annulus {
namespace {

// So many items are dealt into rounds at once: what a plan holds in memory.
constexpr int64_t kItemsAtOnce = 1 << 16;
constexpr int64_t kStripeTiles = 4;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Deals items into rounds: each into the first one after all that write to the same rows.
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
  // May be that of all query heads: then items of different heads and stripes write to its rows.
  static bool OfOneHead(const BlockView& bias) {
    return bias.data != nullptr && bias.block.head_end - bias.block.head_begin == 1;
  }

  absl::Span<const KernelTask> tasks_;
  // (accumulator, key/value head, key block or stripe) → the first round in which it is free; of
  // gradients of a bias (accumulator, shard of the keys, key block).
  std::map<std::tuple<const std::byte*, int32_t, int64_t>, int32_t> free_from_;
  std::vector<std::vector<GradientItem>> rounds_;
  int64_t items_ = 0;
};

// Key blocks × stripes of one task.
class TaskGrid {
 public:
  TaskGrid(absl::Span<const KernelTask> tasks, int32_t task, const CallVisibility& visible,
           const GradientRounds& shape)
      : task_(tasks[task].task),
        number_(task),
        visible_(visible),
        group_(shape.group),
        stripe_slots_(shape.stripe_slots),
        in_order_(shape.in_order),
        first_block_(task_.k_begin / kKeyBlock),
        blocks_(CeilDiv(task_.k_end, kKeyBlock) - first_block_),
        first_stripe_(task_.q_begin * group_ / stripe_slots_),
        stripes_(CeilDiv(task_.q_end * group_, stripe_slots_) - first_stripe_) {}

  bool Deal(Rounds* rounds, absl::FunctionRef<bool(absl::Span<const GradientItem>)> run) const {
    return in_order_ ? DealInOrder(rounds, run) : DealDiagonals(rounds, run);
  }

 private:
  bool DealInOrder(Rounds* rounds,
                   absl::FunctionRef<bool(absl::Span<const GradientItem>)> run) const {
    for (int64_t i = 0; i < blocks_; ++i) {
      for (int64_t j = 0; j < stripes_; ++j) AddHeads(first_block_ + i, first_stripe_ + j, rounds);
      if (rounds->full() && !rounds->Run(run)) return false;
    }
    return true;
  }

  // So that neighbours in the list may run side by side.
  bool DealDiagonals(Rounds* rounds,
                     absl::FunctionRef<bool(absl::Span<const GradientItem>)> run) const {
    const int64_t longer = std::max(blocks_, stripes_), shorter = std::min(blocks_, stripes_);
    for (int64_t diagonal = 0; diagonal < longer; ++diagonal) {
      for (int64_t i = 0; i < shorter; ++i) {
        const int64_t j = (i + diagonal) % longer;
        const bool tall = blocks_ >= stripes_;
        AddHeads(first_block_ + (tall ? j : i), first_stripe_ + (tall ? i : j), rounds);
      }
      if (rounds->full() && !rounds->Run(run)) return false;
    }
    return true;
  }

  void AddHeads(int64_t block, int64_t stripe, Rounds* rounds) const {
    const int32_t end = static_cast<int32_t>(CeilDiv(task_.head_end, group_));
    std::vector<Known> classes(visible_.mask().classes(), Known::kNothing);
    for (int32_t head = task_.head_begin / group_; head < end; ++head) {
      if (AnySees(block, stripe, head, &classes)) rounds->Add({number_, head, block, stripe});
    }
  }

  // Heads of one class see the same: what is known of each class is asked once.
  enum class Known : uint8_t { kNothing, kSees, kSeesNot };
  bool AnySees(int64_t block, int64_t stripe, int32_t kv_head, std::vector<Known>* classes) const {
    const int32_t begin = std::max(kv_head * group_, task_.head_begin);
    const int32_t end = std::min((kv_head + 1) * group_, task_.head_end);
    for (int32_t head = begin; head < end; ++head) {
      Known& known = (*classes)[visible_.mask().ClassOf(head)];
      if (known == Known::kNothing) {
        known = Sees(block, stripe, head) ? Known::kSees : Known::kSeesNot;
      }
      if (known == Known::kSees) return true;
    }
    return false;
  }

  bool Sees(int64_t block, int64_t stripe, int32_t q_head) const {
    const Interval keys{block * kKeyBlock, (block + 1) * kKeyBlock};
    const int64_t begin = std::max(task_.q_begin, stripe * stripe_slots_ / group_);
    const int64_t end = std::min(task_.q_end, CeilDiv((stripe + 1) * stripe_slots_, group_));
    for (int64_t row = begin; row < end; ++row) {
      for (const Interval& span : visible_.Of(number_, q_head, row)) {
        if (Intersect(span, keys).length() > 0) return true;
      }
    }
    return false;
  }

  const Task& task_;
  const int32_t number_;
  const CallVisibility& visible_;
  const int group_;
  const int64_t stripe_slots_;
  const bool in_order_;
  const int64_t first_block_, blocks_, first_stripe_, stripes_;
};

}  // namespace

GradientRounds RoundsOf(const KernelJob& job) {
  const int group = job.layout->group();
  if (!job.spec->deterministic) return {group, kStripeTiles * kTileRows, false};
  return {group, kFoldTile * group, true};
}

void ForEachRound(absl::Span<const KernelTask> tasks, const CallVisibility& visible,
                  const GradientRounds& shape,
                  absl::FunctionRef<bool(absl::Span<const GradientItem>)> run) {
  Rounds rounds(tasks);
  for (size_t t = 0; t < tasks.size(); ++t) {
    const TaskGrid grid(tasks, static_cast<int32_t>(t), visible, shape);
    if (!grid.Deal(&rounds, run)) return;
  }
  rounds.Run(run);
}

}  // namespace annulus

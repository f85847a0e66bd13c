#ifndef ANNULUS_WORKER_KERNEL_CPU_TILE_RULES_H_
#define ANNULUS_WORKER_KERNEL_CPU_TILE_RULES_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "attention/spec/interval.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/cpu/isa/score_rules.h"
#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {

// The score modifiers and the dropout of a job, filled in for the tile and the block at hand. Costs
// nothing where the job has none. One thread's.
class TileRules {
 public:
  explicit TileRules(const KernelJob& job);

  bool change_scores() const { return change_scores_; }
  bool drop_weights() const { return drop_rule_.threshold != 0; }
  // Whether rows differ in what changes their scores or weights: SetRow does nothing else.
  bool by_row() const { return row_inputs_ || alibi_ || drop_weights(); }
  // Row `index` of the tile is query head `q_head` of shard-local row `row` of the task's queries.
  // Rows are set in order, from 0, and keys after them where pairs may be hidden.
  void SetRow(const KernelTask& task, int index, int64_t row, int32_t q_head);
  // The block is keys [first, first + kKeyBlock) of the task's shard.
  void SetKeys(const KernelTask& task, int64_t first);
  // For the rows and keys that were set last.
  const ScoreRule& score_rule() const { return score_rule_; }
  const DropRule& drop_rule() const { return drop_rule_; }
  // Bias or bit mask: a row may see less of a block than its mask's intervals say.
  bool hides_pairs() const { return score_rule_.pairs != nullptr; }
  // Adds to `seen` those of the block's keys `span` that row `index` sees, its mask's intervals
  // apart. Reads bit by bit: for blocks and rows out of the ordinary.
  void AddSeen(int index, KeySpan span, std::vector<KeySpan>* seen) const;
  // Calls fn(key of the block, column, count) for the runs of the block's keys `span`, whose
  // columns in the bias of row `index` lie side by side.
  void ForEachColumnRun(int index, KeySpan span,
                        absl::FunctionRef<void(int, int64_t, int)> fn) const;

 private:
  void SetPairRow(const KernelTask& task, int index, int64_t row, int32_t q_head);
  void SetPairKeys(const KernelTask& task, int64_t first);
  bool Hides(const PairRule::Row& row, int64_t key) const;

  const KernelJob& job_;
  bool change_scores_ = false;
  bool alibi_ = false, row_inputs_ = false;
  ScoreRule score_rule_;
  DropRule drop_rule_;
  std::array<float, kMostTileRows> slope_, offset_;
  std::array<int32_t, kMostTileRows> position_, first_key_;
  uint32_t counter_[kMostTileRows][3];
  std::array<int32_t, kKeyBlock> key_;
  PairRule pair_rule_;
  // For kMostTileRows where the job has inputs by row, else empty: most jobs have none, and a tile
  // may take no longer than clearing these.
  std::vector<PairRule::Row> pair_row_;
  int pair_rows_ = 0;               // Of the tile.
  std::vector<Interval> own_keys_;  // Of the row's sequence, in the task's shard.
  std::vector<PairRule::Run> runs_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_TILE_RULES_H_

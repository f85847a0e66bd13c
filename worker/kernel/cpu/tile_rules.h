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

// The score modifiers and the dropout of a job, filled in for the current tile and block. No cost
// if the job has none. For one thread.
class TileRules {
 public:
  explicit TileRules(const KernelJob& job);

  bool change_scores() const { return change_scores_; }
  bool drop_weights() const { return drop_rule_.threshold != 0; }
  // True if the rows' score or weight changes depend on the row. If false, SetRow does nothing.
  bool by_row() const { return row_inputs_ || alibi_ || drop_weights(); }
  // Row `index` of the tile is query head `q_head` of shard-local row `row` of the task's queries.
  // Call it for rows in order, from 0. If pairs may be hidden, call SetKeys after it.
  void SetRow(const KernelTask& task, int index, int64_t row, int32_t q_head);
  // The block is keys [first, first + kKeyBlock) of the task's shard.
  void SetKeys(const KernelTask& task, int64_t first);
  // The rules for the rows and keys that were set last.
  const ScoreRule& score_rule() const { return score_rule_; }
  const DropRule& drop_rule() const { return drop_rule_; }
  // True if the job has a bias or a bit mask: a row may see less of a block than its mask's
  // intervals say.
  bool hides_pairs() const { return score_rule_.pairs != nullptr; }
  // Adds to `seen` the keys of `span`, relative to the block, that bias and bit mask of row `index`
  // show; it ignores the mask's intervals. It reads bit by bit: only for rare blocks and rows.
  void AddSeen(int index, KeySpan span, std::vector<KeySpan>* seen) const;
  // Calls fn(key of the block, column, count) for each run of the keys `span` of the block with
  // neighbouring columns in the bias of row `index`.
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
  // kMostTileRows entries if the job has inputs by row, otherwise empty. Most jobs have none, and
  // to clear these may take longer than a tile.
  std::vector<PairRule::Row> pair_row_;
  int pair_rows_ = 0;               // Rows of the tile.
  std::vector<Interval> own_keys_;  // Keys of the row's sequence, in the task's shard.
  std::vector<PairRule::Run> runs_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_TILE_RULES_H_

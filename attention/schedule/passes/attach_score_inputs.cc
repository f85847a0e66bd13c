#include "attention/schedule/passes/attach_score_inputs.h"

#include <algorithm>
#include <map>
#include <vector>

#include "attention/schedule/passes/duplicate_transfers.h"
#include "attention/spec/bias_and_mask_inputs.h"

namespace annulus {
namespace {

class BiasGradientAttachment {
 public:
  BiasGradientAttachment(bool of_all_heads, RankSchedule* schedule)
      : of_all_heads_(of_all_heads), schedule_(*schedule), beside_(schedule->buffers.size(), -1) {}

  void Attach() {
    for (size_t buffer = 0; buffer < beside_.size(); ++buffer) {
      if (KindOf(static_cast<int32_t>(buffer)) == BlockKind::kDq) {
        beside_[buffer] = AddBeside(static_cast<int32_t>(buffer));
      }
    }
    for (Step& step : schedule_.steps) FollowFinishes(step);
    for (Step& step : schedule_.steps) {
      for (Task& task : step.tasks) {
        if (task.out_q >= 0) task.out_bias = beside_[task.out_q];
      }
      FollowAdds(&step);
      TakeIn(&step);
      DuplicateTransfers(beside_, &step.sends);
      DuplicateTransfers(beside_, &step.receives);
    }
  }

 private:
  BlockKind KindOf(int32_t buffer) const { return schedule_.buffers[buffer].kind; }
  bool IsOutput(int32_t buffer) const {
    return std::find(schedule_.outputs.begin(), schedule_.outputs.end(), buffer) !=
           schedule_.outputs.end();
  }

  int32_t AddBeside(int32_t buffer) {
    Block block = schedule_.buffers[buffer];
    block.kind = BlockKind::kDBias;
    if (of_all_heads_) {
      block.head_begin = 0;
      block.head_end = 1;
    }
    schedule_.buffers.push_back(block);
    return static_cast<int32_t>(schedule_.buffers.size()) - 1;
  }

  // Sums of own queries' gradients are outputs themselves. Sums for other ranks' queries travel as
  // they are.
  void FollowFinishes(const Step& step) {
    for (const Op& op : step.ops) {
      if (op.kind != Op::Kind::kFinish || KindOf(op.target) != BlockKind::kDqOut) continue;
      beside_[op.target] = beside_[op.source];
      if (IsOutput(op.target)) AddOutput(beside_[op.source]);
    }
  }

  void AddOutput(int32_t buffer) {
    schedule_.outputs.push_back(buffer);
    total_[schedule_.buffers[buffer].shard] = buffer;
  }

  void FollowAdds(Step* step) {
    std::vector<Op> adds;
    for (const Op& op : step->ops) {
      if (op.kind == Op::Kind::kAdd && KindOf(op.target) == BlockKind::kDq) {
        adds.push_back({op.kind, beside_[op.source], beside_[op.target]});
      }
    }
    step->ops.insert(step->ops.end(), adds.begin(), adds.end());
  }

  // For each receive of finished gradients of queries, whose heads another rank has computed:
  // receives and adds the gradient of the bias.
  void TakeIn(Step* step) {
    for (const Transfer& receive : step->receives) {
      if (KindOf(receive.buffer) != BlockKind::kDqOut) continue;
      // If false, the buffer arrives in pieces and was handled before.
      const bool first = beside_[receive.buffer] < 0;
      if (!first) continue;
      const int32_t arriving = beside_[receive.buffer] = AddBeside(receive.buffer);
      if (!of_all_heads_) {
        schedule_.outputs.push_back(arriving);
        continue;
      }
      const int32_t shard = schedule_.buffers[receive.buffer].shard;
      if (total_.count(shard) == 0) AddOutput(AddBeside(receive.buffer));
      step->ops.push_back({Op::Kind::kAdd, arriving, total_[shard]});
    }
  }

  const bool of_all_heads_;
  RankSchedule& schedule_;
  std::vector<int32_t> beside_;       // By buffer of the builder; -1: none.
  std::map<int32_t, int32_t> total_;  // By own shard: the buffer that holds the final sum.
};

}  // namespace

void AttachBiasGradient(const AttentionSpec& spec, RankSchedule* schedule) {
  const BiasAndMaskInputs pairs(spec);
  if (pairs.d_bias) BiasGradientAttachment(pairs.bias_heads == 1, schedule).Attach();
}

namespace {

class ScoreInputAttachment {
 public:
  ScoreInputAttachment(bool per_head, RankSchedule* schedule)
      : per_head_(per_head), schedule_(*schedule), beside_(schedule->buffers.size(), -1) {}

  void Attach() {
    AddBuffers();
    for (Step& step : schedule_.steps) {
      DuplicateTransfers(beside_, &step.sends);
      DuplicateTransfers(beside_, &step.receives);
      for (Task& task : step.tasks) task.pairs = beside_[task.q];
    }
  }

 private:
  Block BlockBeside(Block queries) const {
    queries.kind = BlockKind::kPairs;
    if (!per_head_) {
      queries.head_begin = 0;
      queries.head_end = 1;
    }
    return queries;
  }

  // Several inputs may hold heads of the same rows. A block that applies to all heads exists once.
  int32_t InputBeside(const Block& block) {
    for (const int32_t input : schedule_.inputs) {
      if (schedule_.buffers[input] == block) return input;
    }
    schedule_.inputs.push_back(Add(block));
    return schedule_.inputs.back();
  }

  int32_t Add(const Block& block) {
    schedule_.buffers.push_back(block);
    return static_cast<int32_t>(schedule_.buffers.size()) - 1;
  }

  void AddBuffers() {
    const std::vector<int32_t> inputs = schedule_.inputs;
    for (size_t buffer = 0; buffer < beside_.size(); ++buffer) {
      const Block block = schedule_.buffers[buffer];
      if (block.kind != BlockKind::kQ && block.kind != BlockKind::kQGrad) continue;
      const bool input =
          std::find(inputs.begin(), inputs.end(), static_cast<int32_t>(buffer)) != inputs.end();
      beside_[buffer] = input ? InputBeside(BlockBeside(block)) : Add(BlockBeside(block));
    }
  }

  const bool per_head_;
  RankSchedule& schedule_;
  std::vector<int32_t> beside_;  // By buffer of the builder; -1: none.
};

}  // namespace

void AttachScoreInputs(const AttentionSpec& spec, RankSchedule* schedule) {
  const BiasAndMaskInputs pairs(spec);
  if (pairs.any()) ScoreInputAttachment(pairs.per_head(), schedule).Attach();
}

}  // namespace annulus

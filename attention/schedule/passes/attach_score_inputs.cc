#include "attention/schedule/passes/attach_score_inputs.h"

#include <algorithm>
#include <vector>

#include "attention/schedule/passes/duplicate_transfers.h"
#include "attention/spec/bias_and_mask_inputs.h"

namespace annulus {
namespace {

class Attachment {
 public:
  Attachment(bool per_head, RankSchedule* schedule)
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
  if (pairs.any()) Attachment(pairs.per_head(), schedule).Attach();
}

}  // namespace annulus

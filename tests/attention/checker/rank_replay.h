#ifndef ANNULUS_TESTS_ATTENTION_CHECKER_RANK_REPLAY_H_
#define ANNULUS_TESTS_ATTENTION_CHECKER_RANK_REPLAY_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "attention/schedule/arena/arena_plan.h"
#include "attention/schedule/model/schedule_data.h"
#include "tests/attention/checker/region.h"

namespace annulus {

// One rank's buffers over time, without numbers: which cells have data, and what accumulators have
// attended. Requires: the schedule has passed CheckShape. For each step, call Begin, then Take for
// each receive, then End.
class RankReplay {
 public:
  RankReplay(int32_t rank, const AttentionSpec& spec, const RankSchedule& schedule,
             const ArenaPlan& placement);

  // Births of accumulators, reads of sends, and tasks.
  absl::Status Begin(int32_t k);
  // Completes a receive of this step. `seen` is the result of the sender's Give.
  absl::Status Take(int32_t k, const Transfer& receive, const std::vector<Attended>& seen);
  // Executes the ops.
  absl::Status End(int32_t k);

  // The content of a send. No task of the step writes its buffer, so the time of the call does not
  // matter.
  std::vector<Attended> Give(const Transfer& send) const;

  // For outputs, after the last step.
  bool Holds(int32_t buffer, const Patch& patch) const {
    return states_[buffer].held.Contains(patch);
  }
  const std::vector<Attended>& Seen(int32_t buffer) const { return states_[buffer].seen; }

 private:
  struct State {
    Region held, ended;  // For a partial: rows that have ended in tasks.
    std::vector<Attended> seen;
  };

  // True if the patch has valid data.
  bool Readable(int32_t buffer, const Patch& patch) const {
    const State& state = states_[buffer];
    return state.held.Contains(patch) && !state.ended.Overlaps(patch);
  }
  Patch PatchOfTransfer(const Transfer& transfer) const;
  // `patch` of a buffer, with its heads as query heads.
  Patch InQueryHeads(int32_t buffer, Patch patch) const;
  absl::Status Write(int32_t k, int32_t buffer, const Patch& patch, const Attended& seen);
  absl::Status Run(int32_t k, const Task& task);
  absl::Status BeginRows(int32_t k, const Task& task);
  absl::Status EndRows(int32_t k, const Task& task);
  bool HoldsPairs(const Step& step, const Task& task, Patch queries) const;
  absl::Status Apply(int32_t k, const Op& op);

  const int32_t rank_, q_heads_, group_;  // group_: query heads per key/value head.
  const bool bias_of_all_heads_;
  const RankSchedule& schedule_;
  const ArenaPlan& placement_;
  std::vector<State> states_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_ATTENTION_CHECKER_RANK_REPLAY_H_

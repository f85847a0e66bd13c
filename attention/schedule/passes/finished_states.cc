#include "attention/schedule/passes/finished_states.h"

#include <algorithm>
#include <cstddef>

namespace annulus {
namespace {

bool SameRowsAndHeads(const Block& a, Block b) {
  b.kind = a.kind;
  return a == b;
}

}  // namespace

std::vector<FinishedState> FinishedStates(const RankSchedule& schedule) {
  std::vector<int> uses(schedule.buffers.size(), 0);  // Uses other than tasks.
  std::vector<int32_t> last_task(schedule.buffers.size(), -1);
  std::vector<FinishedState> finished;
  for (size_t k = 0; k < schedule.steps.size(); ++k) {
    const Step& step = schedule.steps[k];
    const auto now = static_cast<int32_t>(k);
    for (const Transfer& send : step.sends) ++uses[send.buffer];
    for (const Transfer& receive : step.receives) ++uses[receive.buffer];
    for (const Task& task : step.tasks)
      if (task.out_q >= 0) last_task[task.out_q] = now;
    for (const Op& op : step.ops) {
      ++uses[op.source];
      ++uses[op.target];
      if (op.kind == Op::Kind::kFinish && schedule.buffers[op.source].kind == BlockKind::kPartial)
        finished.push_back({op.source, op.target, now});
    }
  }
  const auto has_more = [&](const FinishedState& one) {
    return uses[one.state] != 1 || uses[one.out] != 1 || last_task[one.state] > one.step ||
           !SameRowsAndHeads(schedule.buffers[one.state], schedule.buffers[one.out]);
  };
  finished.erase(std::remove_if(finished.begin(), finished.end(), has_more), finished.end());
  return finished;
}

}  // namespace annulus

#include "tests/attention/checker/check_memory.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "attention/schedule/model/accumulators.h"
#include "base/status_macros.h"
#include "tests/attention/checker/broken.h"

namespace annulus {
namespace {

class MemoryCheck {
 public:
  MemoryCheck(int32_t rank, const RankSchedule& schedule, const ArenaPlan& placement,
              const std::vector<bool>& in_staging)
      : rank_(rank), schedule_(schedule), placement_(placement), in_staging_(in_staging) {}

  absl::Status Uses() const {
    const int32_t steps = static_cast<int32_t>(schedule_.steps.size());
    for (const int32_t input : schedule_.inputs) {
      if (Slot(input).born != 0) return Broken(rank_, 0, "an input is not alive from the start");
    }
    for (const int32_t output : schedule_.outputs) {
      if (!InStaging(output) && Slot(output).dies < 2 * steps - 1) {
        return Broken(rank_, steps - 1, "an output is not alive to the end");
      }
    }
    for (int32_t k = 0; k < steps; ++k) RETURN_IF_ERROR(StepUses(k));
    return absl::OkStatus();
  }

  absl::Status Room(const BlockLayout& layout) const {
    for (size_t i = 0; i < schedule_.buffers.size(); ++i) {
      const ArenaPlan::Slot& slot = placement_.slots[i];
      if (Unused(slot)) continue;
      if (slot.bytes < layout.BlockBytes(schedule_.buffers[i])) {
        return Broken(rank_, slot.born / 2, "a slot is smaller than its block");
      }
      if (slot.offset < 0 || slot.offset % 4 != 0 ||
          slot.offset + slot.bytes > placement_.arena_bytes) {
        return Broken(rank_, slot.born / 2, "a slot lies outside the arena or is misaligned");
      }
      // The identity is written before the step, so the memory must be free from the step's first
      // half on.
      if (slot.starts_as_identity && slot.born % 2 != 0) {
        return Broken(rank_, slot.born / 2, "an identity is written before its slot is alive");
      }
    }
    return absl::OkStatus();
  }

  // Only inputs and outputs may be in staging, and not those that transfers use, because staging's
  // tensors are in several pieces.
  absl::Status Staging() const {
    const std::vector<int32_t>&inputs = schedule_.inputs, &outputs = schedule_.outputs;
    for (size_t i = 0; i < in_staging_.size(); ++i) {
      const int32_t buffer = static_cast<int32_t>(i);
      if (!in_staging_[i]) continue;
      if (!Unused(Slot(buffer))) return Broken(rank_, -1, "a buffer in staging has a slot");
      if (IsAccumulator(schedule_.buffers[i].kind) ||
          (!IsIn(inputs, buffer) && !IsIn(outputs, buffer))) {
        return Broken(rank_, -1, "staging has no room for what is no input or output");
      }
    }
    for (size_t k = 0; k < schedule_.steps.size(); ++k) {
      if (MovesStaging(schedule_.steps[k])) return Broken(rank_, k, "a transfer with staging");
      if (WritesInput(schedule_.steps[k]))
        return Broken(rank_, k, "an input in staging is written");
    }
    return absl::OkStatus();
  }

  absl::Status NoOverlap() const {
    std::vector<int32_t> order(placement_.slots.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](int32_t a, int32_t b) { return Slot(a).offset < Slot(b).offset; });
    for (size_t i = 0; i < order.size(); ++i) {
      const ArenaPlan::Slot& a = Slot(order[i]);
      for (size_t j = i + 1; j < order.size(); ++j) {
        const ArenaPlan::Slot& b = Slot(order[j]);
        if (b.offset >= a.offset + a.bytes) break;
        if (b.bytes > 0 && a.born <= b.dies && b.born <= a.dies) {
          return Broken(rank_, std::max(a.born, b.born) / 2, "live buffers overlap in memory");
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  const ArenaPlan::Slot& Slot(int32_t buffer) const { return placement_.slots[buffer]; }
  static bool IsIn(const std::vector<int32_t>& list, int32_t buffer) {
    return std::find(list.begin(), list.end(), buffer) != list.end();
  }
  bool InStaging(int32_t buffer) const { return !in_staging_.empty() && in_staging_[buffer]; }
  bool MovesStaging(const Step& step) const {
    const auto in_staging = [&](const Transfer& t) { return InStaging(t.buffer); };
    return std::any_of(step.sends.begin(), step.sends.end(), in_staging) ||
           std::any_of(step.receives.begin(), step.receives.end(), in_staging);
  }
  bool WritesInput(const Step& step) const {
    const auto is_input = [&](int32_t buffer) {
      return buffer >= 0 && InStaging(buffer) && IsIn(schedule_.inputs, buffer);
    };
    return std::any_of(step.ops.begin(), step.ops.end(),
                       [&](const Op& op) { return is_input(op.target); }) ||
           std::any_of(step.tasks.begin(), step.tasks.end(),
                       [&](const Task& task) { return is_input(task.out); });
  }
  static bool Unused(const ArenaPlan::Slot& slot) { return slot.bytes == 0; }

  bool Alive(int32_t buffer, int32_t half_step) const {
    // The task has no such output, or the buffer is always alive.
    if (buffer < 0 || InStaging(buffer)) return true;
    const ArenaPlan::Slot& slot = Slot(buffer);
    return !Unused(slot) && slot.born <= half_step && half_step <= slot.dies;
  }

  absl::Status StepUses(int32_t k) const {
    const Step& step = schedule_.steps[k];
    bool alive = true;
    for (const Transfer& send : step.sends) alive = alive && Alive(send.buffer, 2 * k);
    for (const Transfer& receive : step.receives) alive = alive && Alive(receive.buffer, 2 * k);
    for (const Task& task : step.tasks) {
      alive = alive && Alive(task.q, 2 * k) && Alive(task.kv, 2 * k) && Alive(task.out_q, 2 * k) &&
              Alive(task.out_kv, 2 * k) && Alive(task.pairs, 2 * k) &&
              Alive(task.out_bias, 2 * k) && Alive(task.out, 2 * k);
    }
    for (const Op& op : step.ops) {
      alive = alive && Alive(op.source, 2 * k + 1) && Alive(op.target, 2 * k + 1);
    }
    return alive ? absl::OkStatus() : Broken(rank_, k, "a buffer is used outside its lifetime");
  }

  const int32_t rank_;
  const RankSchedule& schedule_;
  const ArenaPlan& placement_;
  const std::vector<bool>& in_staging_;
};

}  // namespace

absl::Status CheckMemory(int32_t rank, const RankSchedule& schedule, const ArenaPlan& placement,
                         const BlockLayout& layout, const std::vector<bool>& in_staging) {
  if (placement.slots.size() != schedule.buffers.size() ||
      (!in_staging.empty() && in_staging.size() != schedule.buffers.size())) {
    return Broken(rank, -1, "the placement is not one slot for each buffer");
  }
  const MemoryCheck check(rank, schedule, placement, in_staging);
  RETURN_IF_ERROR(check.Staging());
  RETURN_IF_ERROR(check.Uses());
  RETURN_IF_ERROR(check.Room(layout));
  return check.NoOverlap();
}

}  // namespace annulus

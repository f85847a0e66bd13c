#include "attention/schedule/arena/arena_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "attention/schedule/arena/arena_allocator.h"
#include "attention/schedule/model/accumulators.h"

namespace annulus {
namespace {

constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

// The first use decides whether the buffer starts as the identity.
enum class FirstUse : uint8_t { kNone, kWritten, kRead };

struct Life {
  int32_t born = kNever, dies = -1;
  FirstUse first = FirstUse::kNone;

  void Use(int32_t half_step, FirstUse use) {
    if (first == FirstUse::kNone) first = use;
    born = std::min(born, half_step);
    dies = std::max(dies, half_step);
  }
};

// A receive, a kRound or a kFinish overwrites a buffer. Every other use reads what is there; for an
// accumulator that is the identity.
void UseStep(const Step& step, int32_t k, std::vector<Life>* lives) {
  const auto use = [&](int32_t buffer, int32_t half_step, FirstUse how) {
    if (buffer >= 0) (*lives)[buffer].Use(half_step, how);
  };
  for (const Transfer& receive : step.receives) use(receive.buffer, 2 * k, FirstUse::kWritten);
  for (const Transfer& send : step.sends) use(send.buffer, 2 * k, FirstUse::kRead);
  for (const Task& task : step.tasks) {
    for (const int32_t buffer : {task.q, task.kv, task.out_kv, task.pairs, task.out_bias})
      use(buffer, 2 * k, FirstUse::kRead);
    // If rows of a running state begin in tasks, all of them do, and the first task has some.
    const bool begins = task.begins.length() > 0;
    use(task.out_q, 2 * k, begins ? FirstUse::kWritten : FirstUse::kRead);
    use(task.out, 2 * k, FirstUse::kWritten);
  }
  for (const Op& op : step.ops) {
    const bool writes = op.kind == Op::Kind::kFinish || op.kind == Op::Kind::kRound;
    use(op.source, 2 * k + 1, FirstUse::kRead);
    use(op.target, 2 * k + 1, writes ? FirstUse::kWritten : FirstUse::kRead);
  }
}

std::vector<Life> LivesOf(const RankSchedule& schedule) {
  std::vector<Life> lives(schedule.buffers.size());
  const int32_t steps = static_cast<int32_t>(schedule.steps.size());
  for (const int32_t input : schedule.inputs) lives[input].Use(0, FirstUse::kWritten);
  for (int32_t k = 0; k < steps; ++k) UseStep(schedule.steps[k], k, &lives);
  for (const int32_t output : schedule.outputs) lives[output].Use(2 * steps - 1, FirstUse::kRead);
  return lives;
}

ArenaAllocator::Life LifeOf(const ArenaPlan::Slot& slot) { return {slot.born, slot.dies}; }

// Places slots in increasing order of `key`. Returns the size of the arena.
template <typename Key>
int64_t PlaceInOrder(const Key& key, ArenaAllocator* arena, std::vector<ArenaPlan::Slot>* slots) {
  std::vector<int32_t> order(slots->size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return key((*slots)[a]) < key((*slots)[b]); });
  arena->Clear();
  int64_t arena_bytes = 0;
  for (const int32_t i : order) {
    ArenaPlan::Slot& slot = (*slots)[i];
    slot.offset = arena->Place(LifeOf(slot), slot.bytes);
    arena_bytes = std::max(arena_bytes, slot.offset + slot.bytes);
  }
  return arena_bytes;
}

std::vector<ArenaPlan::Slot> SlotsOf(const RankSchedule& schedule, const BlockLayout& layout,
                                     int64_t alignment, const std::vector<bool>& in_staging) {
  const std::vector<Life> lives = LivesOf(schedule);
  std::vector<ArenaPlan::Slot> slots(lives.size());
  for (size_t i = 0; i < lives.size(); ++i) {
    if (lives[i].dies < 0) continue;  // Never used: takes no memory.
    if (!in_staging.empty() && in_staging[i]) continue;
    ArenaPlan::Slot& slot = slots[i];
    const int64_t bytes = layout.BlockBytes(schedule.buffers[i]);
    slot.bytes = (bytes + alignment - 1) / alignment * alignment;
    slot.starts_as_identity =
        IsAccumulator(schedule.buffers[i].kind) && lives[i].first == FirstUse::kRead;
    // The identity is written before the step, even if an op of the step is the first use.
    slot.born = slot.starts_as_identity ? lives[i].born / 2 * 2 : lives[i].born;
    slot.dies = lives[i].dies;
  }
  return slots;
}

// No single order is best. Rings need little memory in the order of birth; narrow needs among large
// inputs, in the order of size or of lifetime.
ArenaPlan PlaceSlots(const std::vector<ArenaPlan::Slot>& slots) {
  using Slot = ArenaPlan::Slot;
  using Key = std::pair<int64_t, int64_t>;
  std::vector<ArenaAllocator::Life> lives;
  for (const Slot& slot : slots) lives.push_back(LifeOf(slot));
  ArenaAllocator arena(std::move(lives));
  ArenaPlan best;
  const auto attempt = [&](const auto& key) {
    ArenaPlan placement{slots, 0};
    placement.arena_bytes = PlaceInOrder(key, &arena, &placement.slots);
    if (best.slots.empty() || placement.arena_bytes < best.arena_bytes) best = std::move(placement);
  };
  attempt([](const Slot& slot) { return Key(slot.born, -slot.bytes); });
  attempt([](const Slot& slot) { return Key(-slot.bytes, slot.born); });
  attempt([](const Slot& slot) { return Key(slot.born - slot.dies, -slot.bytes); });
  return best;
}

}  // namespace

std::vector<bool> BuffersInStaging(const RankSchedule& schedule) {
  std::vector<bool> in_staging(schedule.buffers.size(), false), input = in_staging;
  for (const int32_t output : schedule.outputs) in_staging[output] = true;
  for (const int32_t buffer : schedule.inputs) in_staging[buffer] = input[buffer] = true;
  for (size_t i = 0; i < in_staging.size(); ++i) {
    if (IsAccumulator(schedule.buffers[i].kind)) in_staging[i] = false;
  }
  for (const Step& step : schedule.steps) {
    for (const Transfer& send : step.sends) in_staging[send.buffer] = false;
    for (const Transfer& receive : step.receives) in_staging[receive.buffer] = false;
    for (const Op& op : step.ops) {
      if (input[op.target]) in_staging[op.target] = false;
    }
  }
  return in_staging;
}

ArenaPlan PlanArena(const RankSchedule& schedule, const BlockLayout& layout, int64_t alignment,
                    const std::vector<bool>& in_staging) {
  ArenaPlan all = PlaceSlots(SlotsOf(schedule, layout, alignment, {}));
  if (in_staging.empty()) return all;
  ArenaPlan fewer = PlaceSlots(SlotsOf(schedule, layout, alignment, in_staging));
  // First fit may need more memory for fewer buffers, and plans count all of them.
  if (fewer.arena_bytes <= all.arena_bytes) return fewer;
  for (size_t i = 0; i < in_staging.size(); ++i) {
    if (in_staging[i]) all.slots[i] = {};
  }
  return all;
}

}  // namespace annulus

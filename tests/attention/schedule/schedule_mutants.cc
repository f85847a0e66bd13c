#include "tests/attention/schedule/schedule_mutants.h"

#include <algorithm>
#include <utility>

namespace annulus {
namespace {

using Random = std::mt19937_64;

template <typename List>
auto* Any(List& list, Random& random) {
  return list.empty() ? nullptr : &list[random() % list.size()];
}

// A random step in which `list` is long enough.
template <typename List>
Step* StepWith(Mutant& mutant, List Step::*list, size_t size, Random& random) {
  std::vector<Step*> steps;
  for (RankSchedule& rank : mutant.ranks) {
    for (Step& step : rank.steps) {
      if ((step.*list).size() >= size) steps.push_back(&step);
    }
  }
  Step** any = Any(steps, random);
  return any == nullptr ? nullptr : *any;
}

template <typename List>
bool Drop(Mutant& mutant, List Step::*list, Random& random) {
  Step* step = StepWith(mutant, list, 1, random);
  if (step == nullptr) return false;
  (step->*list).erase((step->*list).begin() + random() % (step->*list).size());
  return true;
}

template <typename List>
bool Duplicate(Mutant& mutant, List Step::*list, Random& random) {
  Step* step = StepWith(mutant, list, 1, random);
  if (step == nullptr) return false;
  (step->*list).push_back((step->*list)[random() % (step->*list).size()]);
  return true;
}

template <typename List>
bool SwapOrder(Mutant& mutant, List Step::*list, Random& random) {
  Step* step = StepWith(mutant, list, 2, random);
  if (step == nullptr) return false;
  std::swap((step->*list).front(), (step->*list).back());
  return true;
}

// Moves one entry of a list by `by` steps within its rank.
template <typename List>
bool MoveInTime(Mutant& mutant, List Step::*list, int by, Random& random) {
  RankSchedule& rank = *Any(mutant.ranks, random);
  const size_t from = random() % rank.steps.size(), to = from + by;
  if (to >= rank.steps.size() || (rank.steps[from].*list).empty()) return false;
  List& source = rank.steps[from].*list;
  const size_t entry = random() % source.size();
  (rank.steps[to].*list).push_back(source[entry]);
  source.erase(source.begin() + entry);
  return true;
}

// Swaps the buffers of two transfers if their sizes are equal, so that byte counts still match.
bool SwapEqualBuffers(Mutant& mutant, std::vector<Transfer> Step::*list, Random& random) {
  Step* step = StepWith(mutant, list, 2, random);
  if (step == nullptr) return false;
  Transfer &a = (step->*list).front(), &b = (step->*list).back();
  if (a.row_end - a.row_begin != b.row_end - b.row_begin) return false;
  if (a.buffer == b.buffer && a.row_begin == b.row_begin) return false;  // No change.
  std::swap(a.buffer, b.buffer);
  std::swap(a.row_begin, b.row_begin);
  std::swap(a.row_end, b.row_end);
  return true;
}

bool EditTransfer(Mutant& mutant, std::vector<Transfer> Step::*list, Random& random,
                  const std::function<void(Transfer&)>& edit) {
  Step* step = StepWith(mutant, list, 1, random);
  if (step == nullptr) return false;
  edit(*Any(step->*list, random));
  return true;
}

// Applies the same edit to a send and the receive that it matches.
bool EditPair(Mutant& mutant, Random& random, const std::function<void(Transfer&)>& edit) {
  const int32_t from = random() % mutant.ranks.size();
  const size_t k = random() % mutant.ranks[from].steps.size();
  std::vector<Transfer>& sends = mutant.ranks[from].steps[k].sends;
  if (sends.empty()) return false;
  const int32_t to = sends[0].peer;
  for (Transfer& receive : mutant.ranks[to].steps[k].receives) {
    if (receive.peer != from) continue;
    edit(sends[0]);
    edit(receive);
    return true;
  }
  return false;
}

bool DropPair(Mutant& mutant, Random& random) {
  const int32_t from = random() % mutant.ranks.size();
  const size_t k = random() % mutant.ranks[from].steps.size();
  std::vector<Transfer>& sends = mutant.ranks[from].steps[k].sends;
  if (sends.empty()) return false;
  std::vector<Transfer>& receives = mutant.ranks[sends[0].peer].steps[k].receives;
  for (size_t i = 0; i < receives.size(); ++i) {
    if (receives[i].peer != from) continue;
    receives.erase(receives.begin() + i);
    sends.erase(sends.begin());
    return true;
  }
  return false;
}

bool EditTask(Mutant& mutant, Random& random, const std::function<void(Task&)>& edit) {
  Step* step = StepWith(mutant, &Step::tasks, 1, random);
  if (step == nullptr) return false;
  edit(*Any(step->tasks, random));
  return true;
}

// Replaces a buffer of an op or a task by another one of the same kind.
template <typename List>
bool OtherBuffer(Mutant& mutant, List Step::*list, int32_t List::value_type::*field,
                 Random& random) {
  RankSchedule& rank = *Any(mutant.ranks, random);
  Step& step = *Any(rank.steps, random);
  if ((step.*list).empty()) return false;
  auto& entry = *Any(step.*list, random);
  for (int tries = 0; tries < 20; ++tries) {
    const int32_t other = static_cast<int32_t>(random() % rank.buffers.size());
    const int32_t now = entry.*field;
    if (now < 0) return false;
    if (other == now || rank.buffers[other].kind != rank.buffers[now].kind) continue;
    entry.*field = other;
    return true;
  }
  return false;
}

bool EditBlock(Mutant& mutant, Random& random, const std::function<void(Block&)>& edit) {
  RankSchedule& rank = *Any(mutant.ranks, random);
  if (rank.buffers.empty()) return false;
  edit(*Any(rank.buffers, random));
  return true;
}

bool DropFrom(Mutant& mutant, std::vector<int32_t> RankSchedule::*list, Random& random) {
  RankSchedule& rank = *Any(mutant.ranks, random);
  if ((rank.*list).empty()) return false;
  (rank.*list).erase((rank.*list).begin() + random() % (rank.*list).size());
  return true;
}

bool EditSlot(Mutant& mutant, Random& random,
              const std::function<bool(ArenaPlan::Slot&, const Block&)>& edit) {
  const size_t rank = random() % mutant.ranks.size();
  std::vector<ArenaPlan::Slot>& slots = mutant.placements[rank].slots;
  if (slots.empty()) return false;
  const size_t i = random() % slots.size();
  return slots[i].bytes > 0 && edit(slots[i], mutant.ranks[rank].buffers[i]);
}

bool SwapSlots(Mutant& mutant, Random& random, bool offsets) {
  std::vector<ArenaPlan::Slot>& slots = Any(mutant.placements, random)->slots;
  if (slots.size() < 2) return false;
  ArenaPlan::Slot &a = *Any(slots, random), &b = *Any(slots, random);
  if (&a == &b || a.bytes == 0 || b.bytes == 0) return false;
  if (offsets) {
    if (a.offset == b.offset) return false;
    std::swap(a.offset, b.offset);
  } else {
    if (a.born == b.born && a.dies == b.dies) return false;
    std::swap(a.born, b.born);
    std::swap(a.dies, b.dies);
  }
  return true;
}

bool DropStep(Mutant& mutant, Random& random) {
  RankSchedule& rank = *Any(mutant.ranks, random);
  rank.steps.erase(rank.steps.begin() + random() % rank.steps.size());
  return true;
}

std::vector<Damage> TransferDamages() {
  const auto shift = [](Transfer& t) { ++t.row_begin, ++t.row_end; };
  const auto shrink = [](Transfer& t) { --t.row_end; };
  const auto grow = [](Transfer& t) { ++t.row_end; };
  using M = Mutant;
  return {
      {"swap two receives of equal size",
       [](M& m, Random& r) { return SwapEqualBuffers(m, &Step::receives, r); }},
      {"swap two sends of equal size",
       [](M& m, Random& r) { return SwapEqualBuffers(m, &Step::sends, r); }},
      {"reverse the receives of a step",
       [](M& m, Random& r) { return SwapOrder(m, &Step::receives, r); }},
      {"drop a send", [](M& m, Random& r) { return Drop(m, &Step::sends, r); }},
      {"drop a receive", [](M& m, Random& r) { return Drop(m, &Step::receives, r); }},
      {"drop a transfer on both sides", DropPair},
      {"send twice", [](M& m, Random& r) { return Duplicate(m, &Step::sends, r); }},
      {"receive twice", [](M& m, Random& r) { return Duplicate(m, &Step::receives, r); }},
      {"shift a send", [=](M& m, Random& r) { return EditTransfer(m, &Step::sends, r, shift); }},
      {"shift a transfer on both sides", [=](M& m, Random& r) { return EditPair(m, r, shift); }},
      {"shrink a receive",
       [=](M& m, Random& r) { return EditTransfer(m, &Step::receives, r, shrink); }},
      {"shrink a transfer on both sides", [=](M& m, Random& r) { return EditPair(m, r, shrink); }},
      {"grow a transfer on both sides", [=](M& m, Random& r) { return EditPair(m, r, grow); }},
      {"send to another rank",
       [](M& m, Random& r) {
         const int32_t world = m.ranks.size();
         return EditTransfer(m, &Step::sends, r,
                             [&](Transfer& t) { t.peer = (t.peer + 1) % world; });
       }},
      {"a send one step later", [](M& m, Random& r) { return MoveInTime(m, &Step::sends, 1, r); }},
      {"a receive one step earlier",
       [](M& m, Random& r) { return MoveInTime(m, &Step::receives, -1, r); }},
      {"a receive one step later",
       [](M& m, Random& r) { return MoveInTime(m, &Step::receives, 1, r); }},
  };
}

std::vector<Damage> TaskDamages() {
  using M = Mutant;
  const auto task = [](void (*edit)(Task&)) {
    return [edit](M& m, Random& r) { return EditTask(m, r, edit); };
  };
  return {
      {"drop a task", [](M& m, Random& r) { return Drop(m, &Step::tasks, r); }},
      {"do a task twice", [](M& m, Random& r) { return Duplicate(m, &Step::tasks, r); }},
      {"swap two tasks", [](M& m, Random& r) { return SwapOrder(m, &Step::tasks, r); }},
      {"a task one step earlier",
       [](M& m, Random& r) { return MoveInTime(m, &Step::tasks, -1, r); }},
      {"a task one step later", [](M& m, Random& r) { return MoveInTime(m, &Step::tasks, 1, r); }},
      {"shift a task's keys", task([](Task& t) { ++t.k_begin, ++t.k_end; })},
      {"shrink a task's keys", task([](Task& t) { --t.k_end; })},
      {"grow a task's keys", task([](Task& t) { ++t.k_end; })},
      {"shift a task's queries", task([](Task& t) { ++t.q_begin, ++t.q_end; })},
      {"shrink a task's queries", task([](Task& t) { ++t.q_begin; })},
      {"a task loses a head", task([](Task& t) { --t.head_end; })},
      {"a task claims to be full", task([](Task& t) { t.coverage = Coverage::kFull; })},
      {"a full task says partial", task([](Task& t) { t.coverage = Coverage::kPartial; })},
      {"a task of other keys",
       [](M& m, Random& r) { return OtherBuffer(m, &Step::tasks, &Task::kv, r); }},
      {"a task of other queries",
       [](M& m, Random& r) { return OtherBuffer(m, &Step::tasks, &Task::q, r); }},
      {"a task into another partial",
       [](M& m, Random& r) { return OtherBuffer(m, &Step::tasks, &Task::out_q, r); }},
      {"a task into other gradients of keys",
       [](M& m, Random& r) { return OtherBuffer(m, &Step::tasks, &Task::out_kv, r); }},
      {"a task into another gradient of the bias",
       [](M& m, Random& r) { return OtherBuffer(m, &Step::tasks, &Task::out_bias, r); }},
      {"a task forgets the gradient of the bias", task([](Task& t) { t.out_bias = -1; })},
      {"a task forgets its queries' accumulator", task([](Task& t) { t.out_q = -1; })},
      {"a task forgets its keys' accumulator", task([](Task& t) { t.out_kv = -1; })},
      {"a task of the next head", task([](Task& t) { ++t.head_begin, ++t.head_end; })},
  };
}

std::vector<Damage> OpAndBlockDamages() {
  using M = Mutant;
  return {
      {"drop an op", [](M& m, Random& r) { return Drop(m, &Step::ops, r); }},
      {"do an op twice", [](M& m, Random& r) { return Duplicate(m, &Step::ops, r); }},
      {"an op one step earlier", [](M& m, Random& r) { return MoveInTime(m, &Step::ops, -1, r); }},
      {"an op one step later", [](M& m, Random& r) { return MoveInTime(m, &Step::ops, 1, r); }},
      {"reverse the ops of a step", [](M& m, Random& r) { return SwapOrder(m, &Step::ops, r); }},
      {"an op on another source",
       [](M& m, Random& r) { return OtherBuffer(m, &Step::ops, &Op::source, r); }},
      {"an op into another target",
       [](M& m, Random& r) { return OtherBuffer(m, &Step::ops, &Op::target, r); }},
      {"an op the wrong way round",
       [](M& m, Random& r) {
         Step* step = StepWith(m, &Step::ops, 1, r);
         if (step != nullptr) std::swap(step->ops[0].source, step->ops[0].target);
         return step != nullptr;
       }},
      {"a block of another shard",
       [](M& m, Random& r) {
         const int32_t shards = m.built->plan.shards.size();
         return shards > 1 && EditBlock(m, r, [&](Block& b) { b.shard = (b.shard + 1) % shards; });
       }},
      {"a block one row shorter",
       [](M& m, Random& r) { return EditBlock(m, r, [](Block& b) { --b.row_end; }); }},
      {"a block one head shorter",
       [](M& m, Random& r) { return EditBlock(m, r, [](Block& b) { --b.head_end; }); }},
      {"a block of the next heads",
       [](M& m, Random& r) {
         return EditBlock(m, r, [](Block& b) { ++b.head_begin, ++b.head_end; });
       }},
      {"forget an input", [](M& m, Random& r) { return DropFrom(m, &RankSchedule::inputs, r); }},
      {"forget an output", [](M& m, Random& r) { return DropFrom(m, &RankSchedule::outputs, r); }},
      {"drop a step of one rank", DropStep},
  };
}

std::vector<Damage> MemoryDamages() {
  using M = Mutant;
  using Slot = ArenaPlan::Slot;
  const auto slot = [](bool (*edit)(Slot&, const Block&)) {
    return [edit](M& m, Random& r) { return EditSlot(m, r, edit); };
  };
  return {
      {"swap two offsets", [](M& m, Random& r) { return SwapSlots(m, r, true); }, false},
      {"swap two lifetimes", [](M& m, Random& r) { return SwapSlots(m, r, false); }, false},
      {"die early", slot([](Slot& s, const Block&) { return --s.dies >= 0; }), false},
      {"born late", slot([](Slot& s, const Block&) { return ++s.born > 0; }), false},
      {"shift an offset", slot([](Slot& s, const Block&) { return (s.offset += 4) > 0; }), false},
      {"a slot too small", slot([](Slot& s, const Block&) { return (s.bytes -= 4) >= 0; }), false},
      {"no identity at birth",
       slot([](Slot& s, const Block&) { return std::exchange(s.starts_as_identity, false); }),
       false},
      {"identity over arriving keys", slot([](Slot& s, const Block& b) {
         return b.kind == BlockKind::kKv && !std::exchange(s.starts_as_identity, true);
       }),
       false},
  };
}

}  // namespace

std::vector<Damage> AllDamages() {
  std::vector<Damage> all;
  for (std::vector<Damage> some :
       {TransferDamages(), TaskDamages(), OpAndBlockDamages(), MemoryDamages()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

}  // namespace annulus

#include "worker/kernel/cpu/held_blocks.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"

namespace annulus {

std::vector<HeldBlocks::Place> HeldBlocks::PlaceAll(const std::vector<BlockId>& blocks,
                                                    int64_t room) {
  ++round_;
  ForgetOthers(blocks, room);
  std::vector<Place> places(blocks.size());
  size_t missing = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto it = slot_of_.find(blocks[i]);
    if (it == slot_of_.end()) {
      ++missing;
      continue;
    }
    places[i] = {it->second, true};
    slots_[it->second].used = round_;
  }
  const std::vector<int64_t> slots = TakeSlots(missing, room);
  auto next = slots.begin();
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (places[i].held) continue;
    places[i].slot = *next++;
    slots_[places[i].slot] = {blocks[i], round_};
    if (blocks[i].known()) slot_of_[blocks[i]] = places[i].slot;
  }
  return places;
}

void HeldBlocks::ForgetOthers(const std::vector<BlockId>& blocks, int64_t room) {
  absl::flat_hash_set<uint64_t> contents;
  for (const BlockId& id : blocks) contents.insert(id.content);
  for (size_t i = 0; i < slots_.size(); ++i) {
    const BlockId& id = slots_[i].id;
    const bool stays =
        static_cast<int64_t>(i) < room && id.known() && contents.contains(id.content);
    if (!stays) Free(&slots_[i]);
  }
  while (!slots_.empty() && slots_.back().used == 0) slots_.pop_back();
}

std::vector<int64_t> HeldBlocks::TakeSlots(size_t count, int64_t room) {
  std::vector<int64_t> slots, used;
  for (int64_t i = 0; i < room && slots.size() < count; ++i) {
    if (i == static_cast<int64_t>(slots_.size())) slots_.emplace_back();
    if (slots_[i].used == 0)
      slots.push_back(i);
    else if (slots_[i].used < round_)
      used.push_back(i);
  }
  std::stable_sort(used.begin(), used.end(),
                   [&](int64_t a, int64_t b) { return slots_[a].used > slots_[b].used; });
  for (size_t i = 0; slots.size() < count; ++i) {
    Free(&slots_[used[i]]);
    slots.push_back(used[i]);
  }
  return slots;
}

void HeldBlocks::Free(Slot* slot) {
  if (slot->used != 0) slot_of_.erase(slot->id);
  *slot = Slot();
}

void HeldBlocks::Forget() {
  slots_.clear();
  slot_of_.clear();
}

}  // namespace annulus

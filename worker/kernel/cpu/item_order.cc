#include "worker/kernel/cpu/item_order.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {
namespace {

// Joins neighbours of one head that attend to the same keys. With packing in passing: as many as
// allowed; a few if blocks are kept. Otherwise only while enough items remain to keep every thread
// busy to the end. Items are in the order of their tiles.
void JoinTiles(const PhaseLimits& limits, int64_t kept, std::vector<Item>* items) {
  constexpr int64_t kItemsOfThread = 8;
  const auto count = static_cast<int64_t>(items->size());
  const int64_t most =
      limits.passing ? limits.tiles
                     : std::min<int64_t>(limits.tiles, count / (kItemsOfThread * limits.threads));
  if (most < 2) return;
  const auto reads_many = [&](const Item& item) {
    return limits.passing || item.cost >= kManyKeys * kTileRows;
  };
  const auto may_join = [&](const Item& last, const Item& next) {
    const int tiles = last.tiles + next.tiles;
    if (tiles > most) return false;
    return (kept > 1 && tiles <= kTilesBesideKept) || (reads_many(last) && reads_many(next));
  };
  std::vector<Item> joined;
  for (Item& item : *items) {
    if (!joined.empty()) {
      Item& last = joined.back();
      if (last.kv_head == item.kv_head && last.tile + last.tiles == item.tile &&
          last.units == item.units && may_join(last, item)) {
        last.tiles += item.tiles;
        last.cost += item.cost;
        continue;
      }
    }
    joined.push_back(std::move(item));
  }
  *items = std::move(joined);
}

// Deals the items so that each thread's list (compute_pool.h) has neighbours.
void DealNeighbours(int threads, std::vector<Item>* items) {
  std::vector<Item> dealt(items->size());
  auto next = items->begin();
  for (int thread = 0; thread < threads; ++thread)
    for (size_t i = thread; i < dealt.size(); i += threads) dealt[i] = std::move(*next++);
  *items = std::move(dealt);
}

// The sums of a row lie head by head. A CPU that writes to one head's sums prefetches the next
// head's, even from another CPU that works on them.
bool AreEqualHeads(const Phase& phase) {
  const auto items = static_cast<int64_t>(phase.items.size());
  return items == phase.head_end - phase.head_begin &&
         phase.items.front().cost == phase.items.back().cost;
}

}  // namespace

void OrderItems(const PhaseLimits& limits, Phase* phase) {
  JoinTiles(limits, phase->kept, &phase->items);
  if (phase->kept > 1) {
    std::stable_sort(phase->items.begin(), phase->items.end(), [](const Item& a, const Item& b) {
      return std::tie(a.kv_head, a.tile) < std::tie(b.kv_head, b.tile);
    });
    return DealNeighbours(limits.threads, &phase->items);
  }
  std::stable_sort(phase->items.begin(), phase->items.end(),
                   [](const Item& a, const Item& b) { return a.cost > b.cost; });
  if (limits.passing && AreEqualHeads(*phase)) DealNeighbours(limits.threads, &phase->items);
}

}  // namespace annulus

#include "worker/kernel/cpu/tile_visibility.h"

#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "worker/kernel/cpu/item_order.h"

namespace annulus {
namespace {

std::vector<TileVisibleKeys> Seen(const CallPlan& plan, int32_t number, int32_t q_head) {
  const Task& task = plan.tasks[number].task;
  std::vector<TileVisibleKeys> tiles;
  for (int64_t tile = FirstTile(task, plan.group); tile < EndTile(task, plan.group); ++tile) {
    TileVisibleKeys sees{{task.k_end, task.k_begin}, 0};
    const int64_t end = EndRow(plan, task, tile);
    for (int64_t row = FirstRow(plan, task, tile); row < end;) {
      for (const Interval& keys : plan.visible->OfNext(number, q_head, end, &row)) {
        sees.hull = {std::min(sees.hull.begin, keys.begin), std::max(sees.hull.end, keys.end)};
        sees.pairs += keys.length();
      }
    }
    tiles.push_back(sees);
  }
  return tiles;
}

// Counts of the key blocks of one key/value head, over items that run one after the other.
struct BlocksMet {
  int64_t tiles = 0, met = 0, fresh = 0, most = 0;  // `fresh`: not used by the item before.
};

// Requires: the tasks have the same key/value heads.
BlocksMet BlocksOfTiles(const CallPlan& plan, const TileVisibility& hulls,
                        const std::vector<int32_t>& tasks) {
  // Keyed by item, then by source.
  std::map<std::tuple<int64_t, const std::byte*, int32_t>, Interval> met;
  for (const int32_t number : tasks) {
    const KernelTask& bound = plan.tasks[number];
    const int64_t first = FirstTile(bound.task, plan.group);
    for (int64_t tile = first; tile < EndTile(bound.task, plan.group); ++tile) {
      const Interval blocks = hulls.BlocksOf(number, tile - first);
      if (blocks.length() == 0) continue;
      const auto [at, added] =
          met.try_emplace({tile, bound.out_q.data, plan.source_of_task[number]}, blocks);
      Interval& all = at->second;
      if (!added) all = {std::min(all.begin, blocks.begin), std::max(all.end, blocks.end)};
    }
  }
  BlocksMet blocks;
  std::vector<Interval> before(plan.sources.size(), Interval{0, 0});
  std::pair<int64_t, const std::byte*> last{-1, nullptr};
  int64_t of_item = 0;
  for (const auto& [key, keys] : met) {
    const auto& [tile, out, source] = key;
    if (last != std::make_pair(tile, out)) {
      last = {tile, out};
      of_item = 0;
      ++blocks.tiles;
    }
    of_item += keys.length();
    blocks.met += keys.length();
    blocks.fresh += keys.length() - Intersect(keys, before[source]).length();
    blocks.most = std::max(blocks.most, of_item);
    before[source] = keys;
  }
  return blocks;
}

}  // namespace

TileVisibility::TileVisibility(const CallPlan& plan, const KernelControl& control)
    : of_(plan.tasks.size()) {
  for (size_t t = 0; t < plan.tasks.size(); ++t) {
    const Task& task = plan.tasks[t].task;
    const MaskMap& mask = plan.visible->mask();
    of_[t].resize(mask.classes());
    mask.ForEachClass(task.head_begin, task.head_end, [&](int32_t q_head, int32_t) {
      if (Stopped(control)) return;
      of_[t][mask.ClassOf(q_head)] = Seen(plan, static_cast<int32_t>(t), q_head);
    });
  }
}

Interval TileVisibility::BlocksOf(int32_t task, int64_t tile) const {
  Interval keys{std::numeric_limits<int64_t>::max(), 0};
  for (const std::vector<TileVisibleKeys>& of_class : of_[task]) {
    if (of_class.empty() || of_class[tile].hull.length() == 0) continue;
    const Interval& hull = of_class[tile].hull;
    keys = {std::min(keys.begin, hull.begin), std::max(keys.end, hull.end)};
  }
  if (keys.length() == 0) return {0, 0};
  return {keys.begin / kKeyBlock, CeilDiv(keys.end, kKeyBlock)};
}

int64_t BlocksToKeep(const CallPlan& plan, const TileVisibility& hulls, const PhaseLimits& limits) {
  constexpr int64_t kManyRows = 4096, kItemsOfThread = 8;
  int64_t tiles = 0, met = 0, packed = 0, most = 0, all = 0, all_of_head = 0;
  for (const KeySource& source : plan.sources) {
    int64_t blocks = 0;
    for (const Interval& rows : source.rows)
      blocks += CeilDiv(rows.end, kKeyBlock) - rows.begin / kKeyBlock;
    all_of_head += blocks;
    all += blocks * (source.head_end - source.head_begin);
  }
  std::map<std::pair<int32_t, int32_t>, std::vector<int32_t>> tasks_of_heads;
  for (size_t t = 0; t < plan.tasks.size(); ++t) {
    const HeadRange heads = KvHeads(plan.tasks[t].task, plan.group);
    tasks_of_heads[{heads.begin, heads.end}].push_back(static_cast<int32_t>(t));
  }
  for (const auto& [heads, tasks] : tasks_of_heads) {
    const BlocksMet of = BlocksOfTiles(plan, hulls, tasks);
    const int64_t count = heads.second - heads.first;
    tiles += of.tiles * count;
    met += of.met * count;
    packed += of.fresh * count + of.most * (limits.threads - 1);
    most = std::max(most, of.most);
  }
  const bool few = met * kTileRows < kManyRows * all && most <= all_of_head / 2;
  const int joined =
      most * kKeyBlock < kManyKeys ? std::min(limits.tiles, kTilesBesideKept) : limits.tiles;
  const int64_t kept = most + CeilDiv((joined - 1) * kTileRows, kKeyBlock);
  const bool once = packed <= all + all / 4 && kept <= limits.most_kept;
  return few && once && tiles >= kItemsOfThread * limits.threads ? kept : 0;
}

}  // namespace annulus

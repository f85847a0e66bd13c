#include "worker/kernel/cuda/sm90/hopper_gradient_plan.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "tests/worker/kernel/cuda/placed_gradients.h"
#include "tests/worker/kernel/kernel_conformance.h"
#include "worker/kernel/cuda/launch/hopper_plan.h"
#include "worker/kernel/cuda/sm90/hopper_gradient_config.h"

namespace annulus::cuda {
namespace {

template <class T>
T Get(const HopperGradientLaunch& launch, int64_t table, int64_t index) {
  T value;
  std::memcpy(&value, launch.bytes.data() + table + index * static_cast<int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

// Accumulator, own tile, key/value head, task: the tiles that it visits, 1 with masks, 2 without.
using Visits =
    std::map<std::tuple<const std::byte*, int64_t, int32_t, int32_t>, std::map<int64_t, int>>;

const std::byte* OutOf(const KernelTask& bound, bool queries) {
  return queries ? bound.out_q.data : bound.out_kv.data;
}

class HopperGradientPlanTest : public PlacedGradients {
 protected:
  HopperGradientLaunch Make(const LaunchPieces& pieces, bool queries) {
    return MakeHopperGradients(job_, tasks_, *seen_, pieces,
                               queries ? GradientSide::kQueries : GradientSide::kKeysAndValues,
                               &memory_);
  }

  void AddPlanned(const LaunchPieces& pieces, bool queries, Visits* visits) {
    const HopperGradientLaunch launch = Make(pieces, queries);
    const ForwardTables& at = launch.args.forward.at;
    std::set<std::tuple<const std::byte*, int64_t, int32_t>> owners;
    for (int64_t b = 0; b < launch.blocks; ++b) {
      const auto item = Get<ForwardItem>(launch, at.items, b);
      if (queries) {
        EXPECT_EQ(item.first_row, item.tile * kOwnRows / job_.layout->group());
      }
      int32_t last_unit = -1;
      const std::byte* out = nullptr;
      for (int32_t u = item.unit_begin; u < item.unit_end; ++u) {
        const auto unit = Get<int32_t>(launch, at.units, u);
        EXPECT_LT(last_unit, unit) << "in list order";
        last_unit = unit;
        const int32_t task = pieces[unit].task;
        if (out != nullptr) {
          EXPECT_EQ(out, OutOf(tasks_[task], queries));
        }
        out = OutOf(tasks_[task], queries);
        std::map<int64_t, int>& tiles = (*visits)[{out, item.tile, item.kv_head, task}];
        const auto last = Get<int32_t>(launch, at.unit_runs, u + 1);
        for (auto i = Get<int32_t>(launch, at.unit_runs, u); i < last; ++i) {
          const auto run = Get<KeyTileRun>(launch, at.key_runs, i);
          for (int32_t tile = run.begin; tile < run.end; ++tile)
            tiles[tile] = run.masked != 0 ? 1 : 2;
        }
      }
      EXPECT_TRUE(owners.insert({out, item.tile, item.kv_head}).second) << "one block an owner";
    }
  }

  // Every pair of a piece, one by one: tiles with a visible pair.
  void AddSeen(const TaskPiece& piece, bool queries, Visits* visits) {
    const KernelTask& bound = tasks_[piece.task];
    const int group = job_.layout->group();
    const int64_t others = HopperOthers(DimOf(*job_.layout), queries);
    for (int64_t row = piece.q_begin; row < piece.q_end; ++row) {
      for (int32_t head = bound.task.head_begin; head < bound.task.head_end; ++head) {
        const int64_t slot_tile = queries ? (row * group + head % group) / kOwnRows
                                          : row / RowsThatComeBy(static_cast<int>(others), group);
        for (const Interval& span : visible_->Of(piece.task, head, row)) {
          for (int64_t key = span.begin; key < span.end; ++key) {
            const int64_t own = queries ? slot_tile : key / kOwnRows;
            const int64_t other = queries ? key / others : slot_tile;
            (*visits)[{OutOf(bound, queries), own, head / group, piece.task}][other] = 1;
          }
        }
      }
    }
  }
  // True if all slots of a piece in the tile that see something of the task see all of the keys'
  // tile; with `each`, if all slots do.
  bool Whole(const TaskPiece& piece, int32_t kv_head, Interval slots, Interval keys, bool each) {
    const Task& task = tasks_[piece.task].task;
    const int group = job_.layout->group();
    for (int64_t slot = slots.begin; slot < slots.end; ++slot) {
      const int64_t row = slot / group;
      const auto head = static_cast<int32_t>(kv_head * group + slot % group);
      if (row < piece.q_begin || row >= piece.q_end || head < task.head_begin ||
          head >= task.head_end)
        continue;
      int64_t seen = 0, in_all = 0;
      for (const Interval& span : visible_->Of(piece.task, head, row)) {
        seen += Intersect(span, keys).length() > 0 ? Intersect(span, keys).length() : 0;
        in_all += span.length();
      }
      if (seen != keys.length() && (each || in_all > 0)) return false;
    }
    return true;
  }

  void CheckPieces(const std::vector<LaunchPieces>& launches, bool queries) {
    const int group = job_.layout->group();
    const int64_t others = HopperOthers(DimOf(*job_.layout), queries);
    const int64_t slots_of_other = group * RowsThatComeBy(static_cast<int>(others), group);
    for (const LaunchPieces& pieces : launches) {
      Visits planned, seen;
      AddPlanned(pieces, queries, &planned);
      for (const TaskPiece& piece : pieces) AddSeen(piece, queries, &seen);
      ASSERT_EQ(planned.size(), seen.size());
      for (const auto& [owner, tiles] : seen) {
        const auto& [out, own, kv_head, task] = owner;
        const std::map<int64_t, int>& told = planned[owner];
        const TaskPiece* piece = nullptr;
        for (const TaskPiece& one : pieces)
          if (one.task == task) piece = &one;
        ASSERT_NE(piece, nullptr);
        ASSERT_EQ(told.size(), tiles.size());
        for (const auto& [other, any] : tiles) {
          ASSERT_EQ(told.count(other), 1u) << own << " " << other;
          if (told.at(other) != 2) continue;
          const Interval slots =
              queries ? Interval{own * kOwnRows, (own + 1) * kOwnRows}
                      : Interval{other * slots_of_other, (other + 1) * slots_of_other};
          const Interval keys = queries ? Interval{other * others, (other + 1) * others}
                                        : Interval{own * kOwnRows, (own + 1) * kOwnRows};
          const Task& of = tasks_[task].task;
          // Keys outside of a task that sees all belong to no task.
          const Interval in_task =
              of.coverage == Coverage::kFull ? Intersect(keys, {of.k_begin, of.k_end}) : keys;
          EXPECT_TRUE(Whole(*piece, kv_head, slots, in_task, !queries)) << own << " " << other;
        }
      }
    }
  }
};

TEST_F(HopperGradientPlanTest, TilesThatComeByAreThoseThatMeetInAPair) {
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
    AttentionSpec spec =
        Spec(DataType::kBf16, 2 * static_cast<int32_t>(1 + below(5)), 2, below(2) == 0 ? 64 : 128);
    spec.sequences = {Rows(1 + below(300), 1 + below(600)), Rows(below(100), below(200))};
    if (below(4) != 0) spec.masks = {Causal()};
    if (!spec.masks.empty() && below(2) == 0) spec.masks[0].window_left = below(150);
    if (!spec.masks.empty() && below(3) == 0) spec.masks[0].always_visible = 1 + below(9);
    Cuts cuts;
    if (below(2) == 0) cuts.q_rows = {below(200)};
    if (below(2) == 0) cuts.keys = {100, 100 + below(300)};
    cuts.key_shards = static_cast<int>(1 + below(2));
    Place(spec, cuts);
    ASSERT_TRUE(HopperServesGradients(job_, tasks_));
    for (const int64_t max_bytes : {1 << 20, 16 << 10}) {
      const std::vector<LaunchPieces> launches = Cut(max_bytes);
      for (const bool queries : {true, false}) CheckPieces(launches, queries);
      if (HasFailure()) return;
    }
  }
}

// Keeps visited tiles in the GPU's L2 cache.
TEST_F(HopperGradientPlanTest, HeadsThatACacheKeepsComeTogetherTheMostWorkFirst) {
  AttentionSpec spec = Spec(DataType::kBf16, 12, 6, 128);
  // 10 MB of keys and values a head, 20 MB of queries and dO.
  spec.sequences = {Rows(20000, 20000)};
  spec.masks = {Causal()};
  Place(spec, {});
  EXPECT_EQ(HeadsAtOnce(job_, tasks_, kCachedBytes), 3);
  EXPECT_EQ(HeadsAtOnce(job_, tasks_, kCachedBytes, /*of_queries=*/true), 1);
  const LaunchPieces pieces = Cut(64 << 20)[0];
  for (const bool queries : {true, false}) {
    const HopperGradientLaunch launch = Make(pieces, queries);
    const int heads = queries ? 3 : 1;
    for (int64_t b = 1; b < launch.blocks; ++b) {
      const auto item = Get<ForwardItem>(launch, launch.args.forward.at.items, b);
      const auto before = Get<ForwardItem>(launch, launch.args.forward.at.items, b - 1);
      ASSERT_LE(before.kv_head / heads, item.kv_head / heads);
      if (before.kv_head / heads != item.kv_head / heads) continue;
      // Later rows see more, and earlier keys are visible to more rows.
      ASSERT_TRUE(queries ? item.tile <= before.tile + 1 : item.tile >= before.tile);
    }
  }
}

TEST_F(HopperGradientPlanTest, MapsHoldWhatComesBy) {
  AttentionSpec spec = Spec(DataType::kBf16, 6, 2, 64);
  spec.head_dim_v = 32;
  spec.sequences = {Rows(200, 300)};
  Cuts cuts;
  cuts.q_rows = {70};
  cuts.keys = {100};
  Place(spec, cuts);
  const KernelTask& bound = tasks_.back();
  ASSERT_EQ(bound.task.k_begin, 100);
  const auto of_queries = GradientMapsOf(job_, {&bound, 1}, GradientSide::kQueries);
  const auto of_keys = GradientMapsOf(job_, {&bound, 1}, GradientSide::kKeysAndValues);
  ASSERT_EQ(of_queries.size(), 2u);
  ASSERT_EQ(of_keys.size(), 2u);
  const int64_t kv_row = 2 * (64 + 32) * 2, q_row = 6 * ((64 + 32) * 2 + 8);
  EXPECT_EQ(of_queries[1].base, bound.kv.data + 100 * kv_row + 2 * 64 * 2);
  EXPECT_EQ(of_queries[1].row_bytes, kv_row);
  EXPECT_EQ(of_queries[1].columns, 32);
  EXPECT_EQ(of_queries[0].box_rows, 128);
  EXPECT_EQ(of_queries[0].box_heads, 1);
  const int64_t begin = bound.task.q_begin - bound.q.block.row_begin;
  EXPECT_EQ(of_keys[0].base, bound.q.data + begin * q_row);
  EXPECT_EQ(of_keys[1].base, bound.q.data + begin * q_row + 6 * 64 * 2);
  EXPECT_EQ(of_keys[1].rows, bound.task.q_end - bound.task.q_begin);
  EXPECT_EQ(of_keys[1].heads, 6);
  EXPECT_EQ(of_keys[0].head_bytes, 128);
  EXPECT_EQ(of_keys[0].box_heads, 3);
  EXPECT_EQ(of_keys[0].box_rows, 32);  // 96 slots.
}

}  // namespace
}  // namespace annulus::cuda

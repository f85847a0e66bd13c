#include "worker/kernel/cuda/launch/launch_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/reference/from_spec.h"
#include "tests/worker/kernel/cuda/launch/launch_tables.h"
#include "tests/worker/kernel/kernel_harness.h"
#include "worker/kernel/cuda/launch/hopper_config.h"
#include "worker/kernel/cuda/sm80/forward_config.h"
#include "worker/kernel/visibility.h"

namespace annulus::cuda {
namespace {

LaunchSplitRule RuleOf(int64_t max_bytes) {
  LaunchSplitRule rule;
  rule.max_bytes = max_bytes;
  return rule;
}

class LaunchPlanTest : public testing::Test {
 protected:
  void Make(const Cuts& cuts, int64_t rows = 500, int sequences = 1, int64_t more_keys = 200) {
    spec_.dtype = DataType::kBf16;
    spec_.q_heads = heads_;
    spec_.kv_heads = heads_ / 2;
    spec_.head_dim = 8;
    Sequence sequence;
    sequence.q_len = rows;
    sequence.kv_len = rows + more_keys;
    spec_.sequences.assign(sequences, sequence);
    spec_.masks.resize(1);
    spec_.masks[0].causal = true;
    spec_.masks[0].bit_mask = bits_;
    spec_.masks[0].window_left = window_;
    if (!windowed_.empty()) {
      spec_.masks.resize(2);
      spec_.masks[1].window_left = 20;
      spec_.masks[1].query_heads = windowed_;
    }
    reference::Input input = reference::InputOf(spec_);
    if (bits_) input.bit = [](int64_t, int32_t, int64_t, int64_t) { return true; };
    harness_ = std::make_unique<KernelHarness>(spec_, input, cuts);
    job_ = harness_->job();
    tasks_ = harness_->Tasks();
    visible_ = std::make_unique<CallVisibility>(*job_.mask, tasks_, *pool_);
    seen_ = std::make_unique<VisibleRows>(*job_.mask, tasks_, *pool_);
  }

  std::vector<Launch> Launches(int64_t max_bytes) {
    auto cut = SplitLaunches(job_, tasks_, *seen_, RuleOf(max_bytes));
    EXPECT_TRUE(cut.ok()) << cut.status();
    pieces_ = *cut;
    std::vector<Launch> launches;
    for (const LaunchPieces& pieces : pieces_)
      launches.push_back(MakeLaunch(job_, tasks_, *seen_, pieces, &memory_));
    return launches;
  }

  int64_t RowsOfPieces() const {
    int64_t rows = 0;
    for (const LaunchPieces& pieces : pieces_)
      for (const TaskPiece& piece : pieces) rows += piece.q_end - piece.q_begin;
    return rows;
  }

  // The tiles of keys that the unit of an item visits: 1 with a mask, 2 without.
  std::map<int32_t, int> Told(const Launch& launch, int32_t unit) const {
    std::map<int32_t, int> told;
    const auto last = Get<int32_t>(launch, launch.args.at.unit_runs, unit + 1);
    for (auto i = Get<int32_t>(launch, launch.args.at.unit_runs, unit); i < last; ++i) {
      const auto run = Get<KeyTileRun>(launch, launch.args.at.key_runs, i);
      for (int32_t tile = run.begin; tile < run.end; ++tile) told[tile] = run.masked != 0 ? 1 : 2;
    }
    return told;
  }
  // Like Told, computed key by key from the visibility of a piece to the item's slots.
  std::map<int32_t, int> Seen(const ForwardItem& item, const TaskPiece& piece, int32_t keys) const {
    const Task& task = tasks_[piece.task].task;
    const int32_t group = spec_.q_heads / spec_.kv_heads;
    std::map<int32_t, int> seen;
    std::map<int32_t, int32_t> whole;  // Slots that see all of a tile.
    int32_t slots = 0;
    for (int32_t slot = 0; slot < kHopperSlots; ++slot) {
      const int64_t number = item.tile * kHopperSlots + slot, row = number / group;
      const auto head = static_cast<int32_t>(item.kv_head * group + number % group);
      if (row < piece.q_begin || row >= piece.q_end || head < task.head_begin ||
          head >= task.head_end)
        continue;
      std::map<int32_t, int32_t> visible;
      for (const Interval& span : visible_->Of(piece.task, head, row))
        for (int64_t key = span.begin; key < span.end; ++key)
          ++visible[static_cast<int32_t>(key / keys)];
      slots += visible.empty() ? 0 : 1;
      for (const auto& [tile, count] : visible) {
        seen[tile] = 1;
        whole[tile] += count == keys ? 1 : 0;
      }
    }
    for (auto& [tile, told] : seen) told = whole[tile] == slots ? 2 : 1;
    return seen;
  }

  AttentionSpec spec_;
  int32_t heads_ = 6;
  bool bits_ = false;
  std::optional<int64_t> window_;
  std::vector<int32_t> windowed_;  // Query heads with a separate mask.
  const std::unique_ptr<ComputePool> pool_ = *ComputePool::Create(1);
  std::unique_ptr<KernelHarness> harness_;
  KernelJob job_;
  std::vector<KernelTask> tasks_;
  std::unique_ptr<CallVisibility> visible_;  // Visibility for the checks.
  std::unique_ptr<VisibleRows> seen_;
  PlanMemory memory_;
  std::vector<LaunchPieces> pieces_;
};

Cuts ManyTasks() {
  Cuts cuts;
  cuts.q_rows = {130, 131};
  cuts.q_heads = {3};
  cuts.keys = {100, 333};
  cuts.key_shards = 2;
  cuts.striped = true;
  return cuts;
}

// For a call of any size, no launch occupies a device for long, and none is split more than needed.
TEST_F(LaunchPlanTest, ALaunchOfMuchWorkBecomesSeveral) {
  Make({});
  constexpr int64_t kRows = 1 << 21;
  KernelTask huge = tasks_[0];
  huge.task.q_end = huge.task.k_end = kRows;
  huge.task.coverage = Coverage::kFull;
  const auto cut = SplitLaunches(job_, {huge, huge}, *seen_, RuleOf(int64_t{1} << 30));
  ASSERT_TRUE(cut.ok()) << cut.status();
  const double pairs = 2.0 * kRows * kRows * spec_.q_heads;
  const double launches = pairs * PairCost(job_).Of(huge) / kMaxLaunchWork;
  EXPECT_GE(cut->size(), launches);
  EXPECT_LE(cut->size(), launches * 1.1 + 1);
  int32_t task = 0;
  int64_t row = 0;
  for (const LaunchPieces& pieces : *cut) {
    for (const TaskPiece& piece : pieces) {
      if (piece.task != task) {
        EXPECT_EQ(row, kRows);
        row = 0;
      }
      task = piece.task;
      EXPECT_EQ(piece.q_begin, row);
      row = piece.q_end;
    }
  }
  EXPECT_EQ(std::make_pair(task, row), std::make_pair(1, kRows));
}

// Every (task, row, key/value head) once, and tasks of one accumulator tile in list order.
TEST_F(LaunchPlanTest, LaunchesOfAnySizeDoTheSameInTheSameOrder) {
  Make(ManyTasks());
  for (const int64_t max_bytes : {1 << 20, 20 << 10, 6 << 10}) {
    const std::vector<Launch> launches = Launches(max_bytes);
    EXPECT_EQ(launches.size() > 1, max_bytes < 1 << 20);
    std::map<std::tuple<int32_t, int64_t, int32_t>, int> seen;
    std::map<std::tuple<const std::byte*, int32_t, int64_t>, int32_t> last;
    for (size_t l = 0; l < launches.size(); ++l) {
      const Launch& launch = launches[l];
      EXPECT_LE(static_cast<int64_t>(launch.bytes.size()), max_bytes);
      for (int64_t b = 0; b < launch.blocks; ++b) {
        const auto item = Get<ForwardItem>(launch, launch.args.at.items, b);
        for (int32_t u = item.unit_begin; u < item.unit_end; ++u) {
          const auto p = Get<int32_t>(launch, launch.args.at.units, u);
          const TaskPiece& piece = pieces_[l][p];
          const auto task = Get<ForwardTask>(launch, launch.args.at.tasks, p);
          EXPECT_EQ(task.q_begin, piece.q_begin);
          const auto key = std::make_tuple(tasks_[piece.task].out_q.data, item.kv_head, item.tile);
          const auto [at, added] = last.try_emplace(key, piece.task);
          EXPECT_LE(at->second, piece.task);
          at->second = piece.task;
          for (int64_t slot = item.tile * kTileSlots; slot < (item.tile + 1) * kTileSlots; ++slot) {
            const int64_t row = slot / 2;
            if (row < task.q_begin || row >= task.q_end || slot % 2 != 0) continue;
            ++seen[{piece.task, row, item.kv_head}];
          }
        }
      }
    }
    int64_t expected = 0;
    for (const KernelTask& bound : tasks_)
      expected += (bound.task.q_end - bound.task.q_begin) *
                  ((bound.task.head_end + 1) / 2 - bound.task.head_begin / 2);
    EXPECT_EQ(static_cast<int64_t>(seen.size()), expected);
    for (const auto& [key, count] : seen) ASSERT_EQ(count, 1) << std::get<1>(key);
  }
}

TEST_F(LaunchPlanTest, SpansAreThoseOfTheMask) {
  Make(ManyTasks());
  const std::vector<Launch> launches = Launches(20 << 10);
  for (size_t l = 0; l < launches.size(); ++l) {
    const Launch& launch = launches[l];
    for (size_t p = 0; p < pieces_[l].size(); ++p) {
      const TaskPiece& piece = pieces_[l][p];
      const auto task = Get<ForwardTask>(launch, launch.args.at.tasks, static_cast<int64_t>(p));
      if (task.class_at < 0) {
        EXPECT_EQ(tasks_[piece.task].task.coverage, Coverage::kFull);
        continue;
      }
      const auto first = Get<int32_t>(launch, launch.args.at.classes, task.class_at);
      for (int64_t row = piece.q_begin; row < piece.q_end; ++row) {
        const auto spans = visible_->Of(piece.task, task.head_begin, row);
        const int64_t i = first + row - piece.q_begin;
        const auto begin = Get<int32_t>(launch, launch.args.at.firsts, i);
        ASSERT_EQ(Get<int32_t>(launch, launch.args.at.firsts, i + 1) - begin,
                  static_cast<int32_t>(spans.size()));
        for (size_t s = 0; s < spans.size(); ++s) {
          const auto span =
              Get<KeySpan32>(launch, launch.args.at.spans, begin + static_cast<int64_t>(s));
          EXPECT_EQ(span.begin, spans[s].begin);
          EXPECT_EQ(span.end, spans[s].end);
        }
      }
    }
  }
}

// Heads that see the same are planned once.
TEST_F(LaunchPlanTest, TilesOfKeysAreThoseThatSlotsSee) {
  for (const std::vector<int32_t>& windowed :
       {std::vector<int32_t>(), std::vector<int32_t>{4, 5}, std::vector<int32_t>{0, 3, 5}}) {
    windowed_ = windowed;
    Make(ManyTasks());
    LaunchSplitRule rule = RuleOf(20 << 10);
    rule.hopper = true;
    const auto cut = SplitLaunches(job_, tasks_, *seen_, rule);
    ASSERT_TRUE(cut.ok()) << cut.status();
    for (const LaunchPieces& pieces : *cut) {
      const Launch launch = MakeLaunch(job_, tasks_, *seen_, pieces, &memory_, /*hopper=*/true);
      EXPECT_LE(static_cast<int64_t>(launch.bytes.size()), rule.max_bytes);
      for (int64_t block = 0; block < launch.blocks; ++block) {
        const auto item = Get<ForwardItem>(launch, launch.args.at.items, block);
        for (int32_t unit = item.unit_begin; unit < item.unit_end; ++unit) {
          const TaskPiece& piece = pieces[Get<int32_t>(launch, launch.args.at.units, unit)];
          ASSERT_EQ(Told(launch, unit), Seen(item, piece, HopperKeys(64)))
              << "tile " << item.tile << " of head " << item.kv_head;
        }
      }
    }
  }
}

TEST_F(LaunchPlanTest, TheLargestItemsComeFirst) {
  Make({});
  const std::vector<Launch> launches = Launches(1 << 20);
  ASSERT_EQ(launches.size(), 1u);
  EXPECT_GT(Get<ForwardItem>(launches[0], launches[0].args.at.items, 0).tile, 0);
  EXPECT_EQ(Get<ForwardItem>(launches[0], launches[0].args.at.items, launches[0].blocks - 1).tile,
            0);
}

// A few heads first, then the next. With equal visibility, the first head and the first tile come
// first.
TEST_F(LaunchPlanTest, ItemsComeInOrderOfWhatTheySee) {
  for (const bool window : {false, true}) {
    for (const int64_t heads_at_once : {1, 2, 100}) {
      windowed_ = {0, 3};
      if (window) window_ = 100;
      Make({}, 3000);
      ASSERT_EQ(tasks_.size(), 1u);
      const LaunchPieces pieces = {{0, 0, 3000}};
      const Launch launch = MakeLaunch(job_, tasks_, *seen_, pieces, &memory_, /*hopper=*/true,
                                       heads_at_once * 3200 * (8 + 8) * 2);
      std::vector<std::tuple<int64_t, int64_t, int32_t, int64_t>> expected;
      for (int32_t head = 0; head < 3; ++head) {
        std::vector<int64_t> cost((3000 * 2 + kHopperSlots - 1) / kHopperSlots);
        for (int64_t slot = 0; slot < 3000 * 2; ++slot)
          for (const Interval& span : visible_->Of(0, head * 2 + slot % 2, slot / 2))
            cost[slot / kHopperSlots] += span.length();
        for (size_t tile = 0; tile < cost.size(); ++tile)
          expected.emplace_back(head / heads_at_once, -cost[tile], head, tile);
      }
      std::sort(expected.begin(), expected.end());
      ASSERT_EQ(launch.blocks, static_cast<int64_t>(expected.size()));
      for (int64_t b = 0; b < launch.blocks; ++b) {
        const auto item = Get<ForwardItem>(launch, launch.args.at.items, b);
        ASSERT_EQ(item.kv_head, std::get<2>(expected[b])) << b;
        ASSERT_EQ(item.tile, std::get<3>(expected[b])) << b;
      }
    }
  }
}

// Memory reused from an earlier launch does not change the next one.
TEST_F(LaunchPlanTest, LaunchesFromUsedMemoryAreTheSame) {
  PlanMemory memory;
  for (const int64_t rows : {700, 200, 500}) {
    Make(ManyTasks(), rows);
    for (const bool hopper : {true, false}) {
      LaunchSplitRule rule = RuleOf(30 << 10);
      rule.hopper = hopper;
      const auto cut = SplitLaunches(job_, tasks_, *seen_, rule);
      ASSERT_TRUE(cut.ok()) << cut.status();
      for (const LaunchPieces& pieces : *cut) {
        Launch again = MakeLaunch(job_, tasks_, *seen_, pieces, &memory, hopper);
        PlanMemory fresh;
        const Launch launch = MakeLaunch(job_, tasks_, *seen_, pieces, &fresh, hopper);
        EXPECT_EQ(again.bytes, launch.bytes);
        EXPECT_EQ(again.blocks, launch.blocks);
        memory.bytes = std::move(again.bytes);
      }
    }
  }
}

TEST_F(LaunchPlanTest, ARowThatDoesNotFitIsRefused) {
  Make({});
  EXPECT_EQ(SplitLaunches(job_, tasks_, *seen_, RuleOf(500)).status().code(),
            absl::StatusCode::kResourceExhausted);
}

// The smallest limit for a call's single launch is the size of its tables, or little more.
TEST_F(LaunchPlanTest, OnlyTablesThatAreMadeAreCounted) {
  for (const bool alibi : {false, true}) {
    for (const bool cap : {false, true}) {
      spec_ = {};
      if (cap) spec_.modifiers.soft_cap = 3;
      if (alibi) spec_.modifiers.alibi_slopes.assign(6, 0.5f);
      Make({}, 3, /*sequences=*/200);
      int64_t low = 0, high = 1 << 20;  // Too little; enough.
      while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        const auto cut = SplitLaunches(job_, tasks_, *seen_, RuleOf(middle));
        (cut.ok() && cut->size() == 1 ? high : low) = middle;
      }
      const std::vector<Launch> launches = Launches(high);
      ASSERT_EQ(launches.size(), 1u);
      const auto bytes = static_cast<int64_t>(launches[0].bytes.size());
      EXPECT_LE(bytes, high) << alibi << cap;
      EXPECT_GT(bytes, high - 512) << alibi << cap;
    }
  }
}

// The most sequences and heads permitted: a launch has tables of the sequences of its rows, and
// none of heads.
TEST_F(LaunchPlanTest, AnyNumberOfSequencesAndHeadsFitsWhatALaunchHas) {
  struct Shape {
    int sequences;
    int32_t heads;
    bool bits;
  };
  constexpr int64_t kMaxBytes = int64_t{4} << 20;  // A device's value.
  for (const Shape& shape : {Shape{65536, 8, false}, Shape{4096, 128, true}}) {
    spec_ = {};
    if (!shape.bits) spec_.modifiers.alibi_slopes.assign(shape.heads, 0.5f);
    heads_ = shape.heads;
    bits_ = shape.bits;
    Make({}, 1, shape.sequences, /*more_keys=*/1);
    for (const Launch& launch : Launches(kMaxBytes))
      EXPECT_LE(static_cast<int64_t>(launch.bytes.size()), kMaxBytes);
    EXPECT_EQ(RowsOfPieces(), shape.sequences);
  }
}

TEST_F(LaunchPlanTest, KindsFollowTypesDimensionsAndModifiers) {
  Make({});
  EXPECT_EQ(KindOf(job_).element, Element::kBf16);
  EXPECT_EQ(KindOf(job_).dim, 64);
  EXPECT_FALSE(KindOf(job_).changes);
  spec_.head_dim_v = 65;
  spec_.dropout = Dropout{0.0, 1};  // Drops nothing.
  const BlockLayout wide(spec_);
  job_.layout = &wide;
  job_.spec = &spec_;
  EXPECT_EQ(KindOf(job_).dim, 128);
  EXPECT_FALSE(KindOf(job_).changes);
  spec_.modifiers.soft_cap = 3;
  EXPECT_TRUE(KindOf(job_).changes);
}

// A block's limit on sm_80. sm_86 and sm_89 have 99 KiB, and wide fp32 heads are refused there.
TEST(SharedBytesTest, FitsGpus) {
  for (const Element element : {Element::kFp32, Element::kFp16, Element::kBf16})
    for (const int dim : {64, 128, 256})
      for (const bool changes : {false, true})
        EXPECT_LE(SharedBytesOf({element, dim, changes}), 163 << 10);
}

}  // namespace
}  // namespace annulus::cuda

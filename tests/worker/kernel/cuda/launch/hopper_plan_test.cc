#include "worker/kernel/cuda/launch/hopper_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "tests/reference/from_spec.h"
#include "tests/worker/kernel/cuda/launch/launch_tables.h"
#include "tests/worker/kernel/kernel_harness.h"
#include "worker/kernel/cuda/launch/hopper_config.h"
#include "worker/kernel/cuda/launch/launch_plan.h"
#include "worker/kernel/visibility.h"

namespace annulus::cuda {
namespace {

AttentionSpec Spec(int32_t dim) {
  AttentionSpec spec;
  spec.dtype = DataType::kBf16;
  spec.q_heads = 6;
  spec.kv_heads = 2;
  spec.head_dim = dim;
  Sequence sequence;
  sequence.q_len = 300;
  sequence.kv_len = 500;
  spec.sequences = {sequence};
  spec.masks.resize(1);
  spec.masks[0].causal = true;
  spec.masks[0].window_left = 170;
  spec.masks[0].always_visible = 5;
  return spec;
}

bool Served(const AttentionSpec& spec) {
  KernelHarness harness(spec, reference::InputOf(spec), {});
  const std::vector<KernelTask> tasks = harness.Tasks();
  return HopperServes(harness.job(), tasks);
}

// Visibility of tile `tile` to the rows: 0 nothing, 1 something, 2 every row that sees something
// sees all.
int VisibleOf(const std::vector<std::vector<Interval>>& rows, int64_t tile, int keys) {
  bool any = false, all = true;
  for (const std::vector<Interval>& spans : rows) {
    int64_t seen = 0, in_all = 0;
    for (const Interval& span : spans) {
      in_all += span.length();
      seen += Intersect(span, {tile * keys, (tile + 1) * keys}).length();
    }
    any |= seen > 0;
    all &= in_all == 0 || seen == keys;
  }
  return !any ? 0 : all ? 2 : 1;
}

void AddRow(const std::vector<Interval>& spans, KeyTileRuns* runs) {
  std::vector<Sweep> sweeps;
  for (const Interval& span : spans) sweeps.push_back({span, 0, 0});
  runs->AddRows(sweeps, 0, 1);
}

std::vector<KeyTileRun> Taken(KeyTileRuns& runs) {
  std::vector<KeyTileRun> taken;
  runs.AppendTo(&taken);
  return taken;
}

TEST(KeyTileRunsTest, TilesAreThoseThatAreSeen) {
  std::mt19937 random(11);
  for (int round = 0; round < 500; ++round) {
    const int keys = round % 2 == 0 ? 64 : 128;
    std::vector<std::vector<Interval>> rows(1 + random() % 6);
    KeyTileRuns runs(keys);
    for (std::vector<Interval>& spans : rows) {
      int64_t at = 0;
      for (int n = static_cast<int>(random() % 4); n > 0; --n) {
        const int64_t begin = at + static_cast<int64_t>(random() % 300);
        at = begin + 1 + static_cast<int64_t>(random() % 600);
        if (random() % 3 == 0) at = (at + 127) / 128 * 128;
        spans.push_back({begin, at});
        ++at;
      }
      for (int same = static_cast<int>(random() % 3); same >= 0; --same) AddRow(spans, &runs);
    }
    std::vector<int> told(60);
    int32_t last = 0;
    for (const KeyTileRun& run : Taken(runs)) {
      EXPECT_LE(last, run.begin);
      EXPECT_LT(run.begin, run.end);
      last = run.end;
      for (int32_t tile = run.begin; tile < run.end; ++tile) told[tile] = run.masked != 0 ? 1 : 2;
    }
    for (int tile = 0; tile < 60; ++tile)
      ASSERT_EQ(told[tile], VisibleOf(rows, tile, keys)) << "round " << round << " tile " << tile;
  }
}

// The count of a launch's tables, row by row.
TEST(KeyTileRunsTest, RowsTogetherHaveTwiceTheRunsOfEachAtMost) {
  std::mt19937 random(12);
  for (int round = 0; round < 2000; ++round) {
    KeyTileRuns together(64);
    size_t apart = 0;
    for (int rows = 1 + static_cast<int>(random() % 5); rows > 0; --rows) {
      std::vector<Interval> spans;
      int64_t at = 0;
      for (int n = static_cast<int>(random() % 5); n > 0; --n) {
        const int64_t begin = at + static_cast<int64_t>(random() % 150);
        at = begin + 1 + static_cast<int64_t>(random() % 300);
        if (random() % 2 == 0) at = (at + 63) / 64 * 64;
        spans.push_back({begin, at});
      }
      AddRow(spans, &together);
      KeyTileRuns alone(64);
      AddRow(spans, &alone);
      apart += Taken(alone).size();
    }
    ASSERT_LE(Taken(together).size(), 2 * apart) << "round " << round;
  }
}

// Rows whose ends move steadily equal these rows, one by one.
TEST(KeyTileRunsTest, SteadyRowsAreLookedAtOnce) {
  std::mt19937 random(13);
  for (int round = 0; round < 5000; ++round) {
    const int keys = round % 2 == 0 ? 64 : 96;
    KeyTileRuns at_once(keys), each(keys);
    for (int stretches = 1 + static_cast<int>(random() % 3); stretches > 0; --stretches) {
      const auto rows = static_cast<int64_t>(1 + random() % 200);
      const auto skip = static_cast<int64_t>(random() % 3);
      std::vector<Sweep> sweeps;
      int64_t at = static_cast<int64_t>(random() % 200);
      for (int n = static_cast<int>(random() % 4); n > 0; --n) {
        Sweep sweep = {{at, at + 1 + static_cast<int64_t>(random() % 300)}, 0, 0};
        sweep.begin_step = static_cast<int64_t>(random() % 2);
        sweep.end_step = static_cast<int64_t>(random() % 2);
        if (sweep.begin_step > sweep.end_step) sweep.keys.end += skip + rows;
        // All its rows are before the next, by at least one key.
        at = sweep.keys.end + 1;
        if (sweep.end_step == 1) at += skip + rows;
        at += static_cast<int64_t>(random() % 2 * (random() % 200));
        sweeps.push_back(sweep);
      }
      at_once.AddRows(sweeps, skip, rows);
      for (int64_t row = 0; row < rows; ++row) {
        std::vector<Interval> spans;
        for (const Sweep& sweep : sweeps) spans.push_back(sweep.At(skip + row));
        AddRow(spans, &each);
      }
    }
    const std::vector<KeyTileRun> got = Taken(at_once), expected = Taken(each);
    ASSERT_EQ(got.size(), expected.size()) << "round " << round;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].begin, expected[i].begin) << "round " << round;
      ASSERT_EQ(got[i].end, expected[i].end) << "round " << round;
      ASSERT_EQ(got[i].masked, expected[i].masked) << "round " << round;
    }
  }
}

TEST(HopperPlanTest, ServesWhatItCan) {
  EXPECT_TRUE(Served(Spec(64)));
  EXPECT_TRUE(Served(Spec(40)));
  AttentionSpec spec = Spec(128);
  spec.dtype = DataType::kFp16;
  EXPECT_TRUE(Served(spec));
  spec.head_dim_v = 64;
  EXPECT_TRUE(Served(spec));
  spec.head_dim_v = 120;  // A row is not a whole number of keys.
  EXPECT_FALSE(Served(spec));
  spec = Spec(128);
  spec.dtype = DataType::kFp32;
  EXPECT_FALSE(Served(spec));
  EXPECT_FALSE(Served(Spec(36)));
  spec = Spec(64);
  spec.deterministic = true;
  EXPECT_FALSE(Served(spec));
  spec = Spec(64);
  spec.modifiers.soft_cap = 3;
  EXPECT_FALSE(Served(spec));
  spec = Spec(64);
  spec.dropout = Dropout{0.5, 1};
  EXPECT_FALSE(Served(spec));
}

TEST(HopperPlanTest, BlocksLeaveFreeWhatIsKept) {
  EXPECT_EQ(HopperBlocks(1000, 132, 0), 132);
  EXPECT_EQ(HopperBlocks(1000, 132, 8), 124);
  EXPECT_EQ(HopperBlocks(125, 132, 8), 124);
  EXPECT_EQ(HopperBlocks(100, 132, 8), 100);
  // A part of a GPU, as MIG makes them, never keeps all its multiprocessors free.
  EXPECT_EQ(HopperBlocks(1000, 16, 8), 8);
  EXPECT_EQ(HopperBlocks(1000, 16, 32), 8);
  EXPECT_EQ(HopperBlocks(1000, 1, 32), 1);
}

TEST(HopperPlanTest, MemoryThatIsNotAlignedIsNotServed) {
  const AttentionSpec spec = Spec(64);
  KernelHarness harness(spec, reference::InputOf(spec), {});
  std::vector<KernelTask> tasks = harness.Tasks();
  EXPECT_TRUE(HopperServes(harness.job(), tasks));
  for (BlockView KernelTask::*view : {&KernelTask::q, &KernelTask::kv, &KernelTask::out_q}) {
    std::vector<KernelTask> moved = tasks;
    (moved.back().*view).data += 4;
    EXPECT_FALSE(HopperServes(harness.job(), moved));
  }
}

// Maps as a device reads them; here they are the specs themselves.
void ExpectMapsOfTheirTasks(const KernelJob& job, absl::Span<const KernelTask> tasks,
                            const LaunchPieces& pieces, Launch launch) {
  const std::vector<TensorMapSpec> maps = MapsOf(job, tasks);
  ASSERT_EQ(maps.size(), 2 * tasks.size());
  std::vector<std::byte> encoded(maps.size() * kMapBytes);
  for (size_t m = 0; m < maps.size(); ++m)
    std::memcpy(encoded.data() + m * kMapBytes, &maps[m], sizeof(maps[m]));
  PutMaps(encoded, pieces, launch.bytes.data() + launch.args.at.maps);
  for (size_t p = 0; p < pieces.size(); ++p) {
    const KernelTask& bound = tasks[pieces[p].task];
    const auto at = launch.args.at.maps + static_cast<int64_t>(2 * p) * kMapBytes;
    ASSERT_LE(at + 2 * kMapBytes, static_cast<int64_t>(launch.bytes.size()));
    EXPECT_EQ(Get<TensorMapSpec>(launch, at, 0).base, KeyMap(job, bound).base);
    EXPECT_EQ(Get<TensorMapSpec>(launch, at + kMapBytes, 0).base, ValueMap(job, bound).base);
  }
}

// Each slot's keys are in its tile's runs, unmasked runs hide none, and launches of any size fit.
TEST(HopperPlanTest, RunsHoldWhatSlotsSee) {
  const AttentionSpec spec = Spec(64);
  Cuts cuts;
  cuts.q_rows = {130, 131};
  cuts.keys = {100, 333};
  cuts.key_shards = 2;
  KernelHarness harness(spec, reference::InputOf(spec), cuts);
  const KernelJob job = harness.job();
  const std::vector<KernelTask> tasks = harness.Tasks();
  const auto pool = *ComputePool::Create(1);
  const CallVisibility visible(*job.mask, tasks, *pool);
  const VisibleRows seen(*job.mask, tasks, *pool);
  PlanMemory memory;
  for (const int64_t max_bytes : {1 << 20, 12 << 10}) {
    LaunchSplitRule rule;
    rule.max_bytes = max_bytes;
    rule.hopper = true;
    const auto cut = SplitLaunches(job, tasks, seen, rule);
    ASSERT_TRUE(cut.ok()) << cut.status();
    EXPECT_EQ(cut->size() > 1, max_bytes < 1 << 20);
    int64_t slots_seen = 0;
    for (const LaunchPieces& pieces : *cut) {
      const Launch launch = MakeLaunch(job, tasks, seen, pieces, &memory, /*hopper=*/true);
      EXPECT_LE(static_cast<int64_t>(launch.bytes.size()), max_bytes);
      EXPECT_EQ(launch.args.at.maps % kMapBytes, 0);
      ExpectMapsOfTheirTasks(job, tasks, pieces, launch);
      for (int64_t b = 0; b < launch.blocks; ++b) {
        const auto item = Get<ForwardItem>(launch, launch.args.at.items, b);
        for (int32_t u = item.unit_begin; u < item.unit_end; ++u) {
          const TaskPiece& piece = pieces[Get<int32_t>(launch, launch.args.at.units, u)];
          std::vector<std::vector<Interval>> rows;
          for (int64_t n = item.tile * kHopperSlots; n < (item.tile + 1) * kHopperSlots; ++n) {
            const int64_t row = n / 3;
            if (row < piece.q_begin || row >= piece.q_end) continue;
            const auto spans =
                visible.Of(piece.task, static_cast<int32_t>(item.kv_head * 3 + n % 3), row);
            rows.emplace_back(spans.begin(), spans.end());
            ++slots_seen;
          }
          std::vector<int> told(10);
          const auto last = Get<int32_t>(launch, launch.args.at.unit_runs, u + 1);
          for (auto i = Get<int32_t>(launch, launch.args.at.unit_runs, u); i < last; ++i) {
            const auto run = Get<KeyTileRun>(launch, launch.args.at.key_runs, i);
            for (int32_t t = run.begin; t < run.end; ++t) told[t] = run.masked != 0 ? 1 : 2;
          }
          for (int tile = 0; tile < 10; ++tile) ASSERT_EQ(told[tile], VisibleOf(rows, tile, 128));
        }
      }
    }
    int64_t slots = 0;
    for (const KernelTask& bound : tasks)
      slots +=
          (bound.task.q_end - bound.task.q_begin) * (bound.task.head_end - bound.task.head_begin);
    EXPECT_EQ(slots_seen, slots);
  }
}

// Items of as many heads as a cache holds, largest first, then those of the next heads. The count
// of taken items begins at 0.
TEST(HopperPlanTest, ItemsOfHeadsThatACacheKeepsComeTogether) {
  AttentionSpec spec = Spec(64);
  spec.masks[0].window_left.reset();
  KernelHarness harness(spec, reference::InputOf(spec), {});
  const KernelJob job = harness.job();
  const std::vector<KernelTask> tasks = harness.Tasks();
  const auto pool = *ComputePool::Create(1);
  const VisibleRows seen(*job.mask, tasks, *pool);
  PlanMemory memory;
  LaunchSplitRule rule;
  rule.max_bytes = 1 << 20;
  rule.hopper = true;
  const LaunchPieces pieces = (*SplitLaunches(job, tasks, seen, rule))[0];
  constexpr int64_t kHeadBytes = 500 * (64 + 64) * 2;
  EXPECT_EQ(HeadsAtOnce(job, tasks, kHeadBytes - 1), 1);
  EXPECT_EQ(HeadsAtOnce(job, tasks, 2 * kHeadBytes), 2);
  for (const int heads_at_once : {1, 2}) {
    const Launch launch =
        MakeLaunch(job, tasks, seen, pieces, &memory, /*hopper=*/true, heads_at_once * kHeadBytes);
    ASSERT_EQ(launch.blocks, 2 * 8);  // 900 slots of each head, 128 per item.
    EXPECT_EQ(launch.args.items, launch.blocks);
    EXPECT_EQ(Get<int32_t>(launch, launch.args.at.next_item, 0), 0);
    for (int64_t b = 0; b < launch.blocks; ++b) {
      const auto item = Get<ForwardItem>(launch, launch.args.at.items, b);
      EXPECT_EQ(item.first_row, item.tile * kHopperSlots / 3);
      if (heads_at_once == 1) {
        EXPECT_EQ(item.kv_head, b / 8);
      }
      if (b % (8 * heads_at_once) == 0) continue;
      // With this mask a later tile sees more; the last tile has 4 slots.
      const auto before = Get<ForwardItem>(launch, launch.args.at.items, b - 1);
      if (item.tile != 7 && before.tile != 7) {
        EXPECT_LE(item.tile, before.tile) << b;
      }
    }
  }
}

TEST(HopperPlanTest, MapsHoldTheKeysOfATask) {
  const AttentionSpec spec = Spec(64);
  Cuts cuts;
  cuts.keys = {100};
  KernelHarness harness(spec, reference::InputOf(spec), cuts);
  const std::vector<KernelTask> tasks = harness.Tasks();
  const KernelTask& second = tasks.back();
  ASSERT_EQ(second.task.k_begin, 100);
  const TensorMapSpec keys = KeyMap(harness.job(), second);
  const TensorMapSpec values = ValueMap(harness.job(), second);
  const int64_t row = 2 * 2 * 64 * 2;  // Heads, keys and values, columns, bytes.
  EXPECT_EQ(keys.base, second.kv.data + 100 * row);
  EXPECT_EQ(values.base, second.kv.data + 100 * row + row / 2);
  EXPECT_EQ(keys.rows, second.task.k_end - 100);
  EXPECT_EQ(keys.row_bytes, row);
  EXPECT_EQ(keys.head_bytes, 128);
  EXPECT_EQ(keys.heads, 2);
  EXPECT_EQ(keys.columns, 64);
  EXPECT_EQ(keys.box_rows, 128);
}

}  // namespace
}  // namespace annulus::cuda

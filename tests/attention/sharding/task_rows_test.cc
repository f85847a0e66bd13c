#include "attention/sharding/task_rows.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

#include "attention/sharding/task_sweeps.h"

namespace annulus {
namespace {

RowMap Contiguous(int64_t begin, int64_t rows) { return RowMap({{begin, rows, rows, 1}}); }

// Stripes of `stripe` rows for `rank` of `ranks` over `length` rows.
RowMap Striped(int64_t length, int64_t stripe, int64_t rank, int64_t ranks) {
  std::vector<RowRange> ranges;
  for (int64_t at = rank * stripe; at < length; at += ranks * stripe) {
    const int64_t rows = std::min(stripe, length - at);
    ranges.push_back({at, rows, rows, 1});
  }
  return RowMap(std::move(ranges));
}

// Checks that the MovingIntervals of rows `q` give the same for `asked` as `rows`, with ends that
// stay or move by one.
void ExpectSwept(const TaskSweeps& swept, const TaskRows& rows, Interval q, Interval asked) {
  int64_t next = asked.begin;
  swept.ForEach(asked, [&](Interval part, absl::Span<const Sweep> sweeps, int64_t skip) {
    ASSERT_EQ(part.begin, next);
    ASSERT_GT(part.end, next);
    next = part.end;
    for (const Sweep& sweep : sweeps) {
      ASSERT_EQ(sweep.begin_step, sweep.begin_step != 0 ? 1 : 0);
      ASSERT_EQ(sweep.end_step, sweep.end_step != 0 ? 1 : 0);
    }
    for (int64_t row = part.begin; row < part.end; ++row) {
      const size_t first = rows.first[row - q.begin], last = rows.first[row - q.begin + 1];
      ASSERT_EQ(sweeps.size(), last - first) << "row " << row;
      for (size_t i = 0; i < sweeps.size(); ++i)
        ASSERT_EQ(sweeps[i].At(skip + row - part.begin), rows.spans[first + i]) << "row " << row;
    }
  });
  ASSERT_EQ(next, std::max(asked.begin, asked.end));
}

// Compares with MaskMap in packed rows, row by row and key by key.
void ExpectMatches(const MaskMap& mask, const RowMap& q_map, const RowMap& k_map, Interval q,
                   Interval k, int32_t head) {
  const TaskRows rows = VisibleInTask(mask, q_map, k_map, q, k, head);
  ASSERT_EQ(rows.first.size(), static_cast<size_t>(q.length()) + 1);
  ASSERT_EQ(rows.first.front(), 0);
  ASSERT_EQ(rows.first.back(), static_cast<int32_t>(rows.spans.size()));
  for (int64_t i = 0; i < q.length(); ++i) {
    std::vector<char> expected(k_map.rows(), 0), got(k_map.rows(), 0);
    const Intervals visible = mask.VisiblePacked(head, q_map.Global(q.begin + i));
    for (int64_t j = k.begin; j < k.end; ++j) {
      for (const Interval& keys : visible) {
        if (k_map.Global(j) >= keys.begin && k_map.Global(j) < keys.end) expected[j] = 1;
      }
    }
    int64_t last_end = -1;
    for (int32_t s = rows.first[i]; s < rows.first[i + 1]; ++s) {
      ASSERT_GT(rows.spans[s].begin, last_end) << "not sorted, disjoint and apart";
      ASSERT_GT(rows.spans[s].length(), 0);
      last_end = rows.spans[s].end;
      for (int64_t j = rows.spans[s].begin; j < rows.spans[s].end; ++j) got[j] = 1;
    }
    ASSERT_EQ(got, expected) << "row " << i;
  }
  ExpectSwept(TaskSweeps(mask, q_map, k_map, q, k, head), rows, q, q);
  const Interval some = {q.begin + q.length() / 3, q.end - q.length() / 4};
  ExpectSwept(TaskSweeps(mask, q_map, k_map, q, k, head), rows, q, some);
}

AttentionSpec SpecOf(std::vector<std::pair<int64_t, int64_t>> lengths, std::vector<Mask> masks) {
  AttentionSpec spec;
  spec.q_heads = 2;
  spec.kv_heads = 1;
  for (const auto& [q_len, kv_len] : lengths) {
    Sequence sequence;
    sequence.q_len = q_len;
    sequence.kv_len = kv_len;
    spec.sequences.push_back(sequence);
  }
  spec.masks = std::move(masks);
  return spec;
}

TEST(TaskRowsTest, StripedShardsOfPackedSequencesMatchTheMask) {
  constexpr uint32_t kSeed = 17;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  for (int trial = 0; trial < 500; ++trial) {
    SCOPED_TRACE(trial);
    Mask mask;
    mask.causal = random() % 2 == 0;
    if (random() % 2 == 0) mask.window_left = random() % 4;
    if (random() % 2 == 0) mask.always_visible = random() % 4;
    if (random() % 4 == 0) mask.window_right = random() % 4;
    if (random() % 4 == 0) mask.prefix = random() % 9;
    if (random() % 4 == 0) mask.chunk = 1 + random() % 30;
    // Short: rows are queried one by one. Long: they are split.
    const int64_t length = trial % 2 == 0 ? 20 : 80;
    for (uint64_t i = trial % 3 == 0 ? random() % 4 : 0; i > 0; --i) {
      const auto at = [&] { return static_cast<int64_t>(random() % length); };
      const int64_t q = at(), k = at();
      mask.ranges.push_back(
          {q, q + 1 + at(), k, k + 1 + at(), static_cast<MaskRange::Kind>(random() % 4)});
    }
    const AttentionSpec spec = SpecOf({{random() % length, random() % length}, {5, 7}}, {mask});
    const int64_t ranks = 1 + random() % 3, stripe = 1 + random() % 3;
    const RowMap q_map = Striped(spec.q_rows(), stripe, random() % ranks, ranks);
    const RowMap k_map = Striped(spec.kv_rows(), stripe, random() % ranks, ranks);
    const Interval q{q_map.rows() / 4, q_map.rows()}, k{k_map.rows() / 3, k_map.rows()};
    ExpectMatches(MaskMap(spec), q_map, k_map, q, k, random() % 2);
    if (HasFatalFailure()) return;
  }
}

TEST(TaskRowsTest, FewOfManyRowsAreAskedForOneByOne) {
  Mask mask;
  mask.causal = true;
  mask.window_left = 1000;
  const MaskMap map(SpecOf({{50000, 50000}, {30000, 30000}}, {mask}));
  const RowMap all = Contiguous(0, 80000), ends({{0, 9000, 9000, 1}, {60000, 9000, 9000, 1}});
  for (const RowMap* rows : {&all, &ends}) {
    const Interval every{0, rows->rows()};
    const TaskSweeps swept(map, *rows, *rows, every, every, 0);
    EXPECT_LT(swept.asked(), 100);
    int stretches = 0;
    swept.ForEach(every, [&](Interval, absl::Span<const Sweep>, int64_t) { ++stretches; });
    EXPECT_LT(stretches, 10);
    ExpectSwept(swept, VisibleInTask(map, *rows, *rows, every, every, 0), every, every);
  }
}

TEST(TaskRowsTest, KeysThatTouchOnlyLocallyBecomeOneSpan) {
  Mask mask;
  mask.window_left = 0;
  mask.window_right = 0;
  mask.always_visible = 1;
  const MaskMap map(SpecOf({{8, 8}}, {mask}));
  // The shard has only keys 0 and 5; row 5 sees exactly these.
  const RowMap k_map({{0, 1, 5, 2}});
  const TaskRows rows = VisibleInTask(map, Contiguous(0, 8), k_map, {5, 6}, {0, 2}, 0);
  EXPECT_EQ(rows.spans, (std::vector<Interval>{{0, 2}}));
}

TEST(TaskRowsTest, NoRowsAndNoKeysGiveNoSpans) {
  const MaskMap map(SpecOf({{4, 4}}, {}));
  const RowMap all = Contiguous(0, 4);
  EXPECT_EQ(VisibleInTask(map, all, all, {2, 2}, {0, 4}, 0).first, (std::vector<int32_t>{0}));
  EXPECT_EQ(VisibleInTask(map, all, all, {0, 2}, {1, 1}, 0).first, (std::vector<int32_t>{0, 0, 0}));
  EXPECT_EQ(VisibleInTask(map, all, all, {0, 1}, {1, 3}, 0).spans, (std::vector<Interval>{{1, 3}}));
}

}  // namespace
}  // namespace annulus

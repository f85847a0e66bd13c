#include "attention/mask/mask.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace annulus {
namespace {

// Floor division, implemented differently from the product's.
int64_t ChunkOf(int64_t position, int64_t chunk) {
  int64_t index = 0;
  while (position < index * chunk) --index;
  while (position >= (index + 1) * chunk) ++index;
  return index;
}

bool InRange(const MaskRange& r, int64_t i, int64_t j) {
  if (i < r.q_begin || i >= r.q_end || j < r.k_begin || j >= r.k_end) return false;
  // Rows and keys counted from the last corner, and from the first.
  const bool causal = r.k_end - 1 - j >= r.q_end - 1 - i;
  const bool inverse = j - r.k_begin >= i - r.q_begin;
  switch (r.kind) {
    case MaskRange::Kind::kFull:
      return true;
    case MaskRange::Kind::kCausal:
      return causal;
    case MaskRange::Kind::kInverseCausal:
      return inverse;
    case MaskRange::Kind::kBiCausal:
      return causal && inverse;
  }
  return false;
}

// The rule of docs/reference/numerics.md, "Masks", literally.
bool Sees(const Mask& m, int64_t q_len, int64_t kv_len, int64_t i, int64_t j) {
  const int64_t p = m.alignment == Mask::Alignment::kTopLeft ? i : i + kv_len - q_len;
  const bool order = !m.causal || j <= p || (m.prefix && j < *m.prefix);
  const bool local = (!m.window_left || j >= p - *m.window_left) &&
                     (!m.window_right || j <= p + *m.window_right) &&
                     (!m.chunk || ChunkOf(j, *m.chunk) == ChunkOf(p, *m.chunk));
  bool visible = order && (local || (m.always_visible && j < *m.always_visible));
  if (!m.ranges.empty()) {
    bool listed = false;
    for (const MaskRange& range : m.ranges) listed = listed || InRange(range, i, j);
    visible = visible && listed;
  }
  return visible;
}

AttentionSpec SpecOf(std::vector<Sequence> sequences, std::vector<Mask> masks, int32_t heads = 1) {
  AttentionSpec spec;
  spec.q_heads = heads;
  spec.kv_heads = 1;
  spec.sequences = std::move(sequences);
  spec.masks = std::move(masks);
  return spec;
}

Sequence Seq(int64_t q_len, int64_t kv_len, int32_t mask = 0) {
  Sequence sequence;
  sequence.q_len = q_len;
  sequence.kv_len = kv_len;
  sequence.mask = mask;
  return sequence;
}

std::vector<int32_t> ClassesOf(const AttentionSpec& spec) {
  const MaskMap map(spec);
  std::vector<int32_t> classes;
  for (int32_t head = 0; head < spec.q_heads; ++head) classes.push_back(map.ClassOf(head));
  return classes;
}

// grid[q][k] of a whole job by the predicate `sees(q_row, k_row)`.
using Grid = std::vector<std::vector<char>>;

void ExpectRectanglesMatch(const MaskMap& map, int32_t head, const Grid& grid, int64_t k_rows) {
  const int64_t q_rows = static_cast<int64_t>(grid.size());
  const int64_t step_q = q_rows > 8 ? 3 : 1, step_k = k_rows > 8 ? 3 : 1;
  for (int64_t q0 = 0; q0 <= q_rows; q0 += step_q) {
    for (int64_t q1 = q0; q1 <= q_rows; q1 += step_q) {
      for (int64_t k0 = 0; k0 <= k_rows; k0 += step_k) {
        for (int64_t k1 = k0; k1 <= k_rows; k1 += step_k) {
          int64_t area = 0;
          for (int64_t q = q0; q < q1; ++q) {
            for (int64_t k = k0; k < k1; ++k) area += grid[q][k];
          }
          ASSERT_EQ(map.Area(head, {q0, q1}, {k0, k1}), area)
              << "q " << q0 << ".." << q1 << " k " << k0 << ".." << k1;
          const Coverage expected = area == 0                       ? Coverage::kEmpty
                                    : area == (q1 - q0) * (k1 - k0) ? Coverage::kFull
                                                                    : Coverage::kPartial;
          ASSERT_EQ(map.Classify(head, {q0, q1}, {k0, k1}), expected);
        }
      }
    }
  }
}

// Compares Visible, VisiblePacked, Area and Classify of the whole job with Sees() of
// `mask_of(sequence)`.
void ExpectMatches(const AttentionSpec& spec, int32_t head,
                   const std::function<Mask(const Sequence&)>& mask_of, size_t most_intervals) {
  const MaskMap map(spec);
  Grid grid(spec.q_rows(), std::vector<char>(spec.kv_rows(), 0));
  int64_t q_begin = 0, k_begin = 0;
  for (int64_t s = 0; s < map.sequences(); ++s) {
    const Sequence& sequence = spec.sequences[s];
    const Mask mask = mask_of(sequence);
    for (int64_t i = 0; i < sequence.q_len; ++i) {
      std::vector<char>& row = grid[q_begin + i];
      for (int64_t j = 0; j < sequence.kv_len; ++j) {
        row[k_begin + j] = Sees(mask, sequence.q_len, sequence.kv_len, i, j);
      }
      const Intervals packed = map.VisiblePacked(head, q_begin + i);
      ASSERT_LE(packed.size(), most_intervals);
      std::vector<char> got(spec.kv_rows(), 0);
      int64_t last_end = -1;
      for (const Interval& interval : packed) {
        ASSERT_GT(interval.begin, last_end) << "not sorted, disjoint and apart";
        ASSERT_GT(interval.length(), 0);
        last_end = interval.end;
        for (int64_t k = interval.begin; k < interval.end; ++k) got[k] = 1;
      }
      ASSERT_EQ(got, row) << "sequence " << s << " row " << i;
      ASSERT_EQ(map.SequenceOfQuery(q_begin + i), s);
    }
    for (int64_t j = 0; j < sequence.kv_len; ++j) ASSERT_EQ(map.SequenceOfKey(k_begin + j), s);
    q_begin += sequence.q_len;
    k_begin += sequence.kv_len;
  }
  ExpectRectanglesMatch(map, head, grid, spec.kv_rows());
}

void ExpectOneMaskMatches(const Mask& mask, int64_t q_len, int64_t kv_len) {
  ExpectMatches(
      SpecOf({Seq(q_len, kv_len)}, {mask}), 0, [&](const Sequence&) { return mask; },
      mask.ranges.empty() ? 2 : 99);
}

// Every combination of fields with small values, over all small shapes.
std::vector<Mask> AllSmallMasks() {
  using Field = std::optional<int64_t>;
  std::vector<Mask> masks;
  for (const bool causal : {false, true}) {
    for (const auto alignment : {Mask::Alignment::kBottomRight, Mask::Alignment::kTopLeft}) {
      for (const Field left : {Field(), Field(0), Field(2)}) {
        for (const Field right : {Field(), Field(0), Field(1)}) {
          for (const Field chunk : {Field(), Field(1), Field(3)}) {
            for (const Field prefix : {Field(), Field(2)}) {
              for (const Field always : {Field(), Field(0), Field(2)}) {
                masks.push_back(
                    {causal, alignment, left, right, chunk, prefix, always, {}, false, {}});
              }
            }
          }
        }
      }
    }
  }
  return masks;
}

TEST(MaskTest, EverySmallMaskOverEverySmallShapeFollowsTheRule) {
  for (const Mask& mask : AllSmallMasks()) {
    for (int64_t q_len = 0; q_len <= 5; ++q_len) {
      for (int64_t kv_len = 0; kv_len <= 5; ++kv_len) {
        ExpectOneMaskMatches(mask, q_len, kv_len);
        if (HasFatalFailure()) return;
      }
    }
  }
}

Mask RandomMask(std::mt19937& random, bool with_ranges) {
  const auto maybe = [&](int64_t least, int64_t most) -> std::optional<int64_t> {
    if (random() % 2 == 0) return std::nullopt;
    return least + static_cast<int64_t>(random() % static_cast<uint32_t>(most - least + 1));
  };
  Mask mask;
  mask.causal = random() % 2 == 0;
  mask.alignment = static_cast<Mask::Alignment>(random() % 2);
  mask.window_left = maybe(0, 9);
  mask.window_right = maybe(0, 9);
  mask.chunk = maybe(1, 7);
  mask.prefix = maybe(0, 20);
  mask.always_visible = maybe(0, 20);
  for (uint32_t i = with_ranges ? random() % 4 : 0; i > 0; --i) {
    MaskRange range;
    range.q_begin = random() % 14;
    range.q_end = range.q_begin + random() % 14;
    range.k_begin = random() % 14;
    range.k_end = range.k_begin + random() % 14;
    range.kind = static_cast<MaskRange::Kind>(random() % 4);
    mask.ranges.push_back(range);
  }
  return mask;
}

TEST(MaskTest, RandomMasksWithRangeListsFollowTheRule) {
  constexpr uint32_t kSeed = 41;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  for (int trial = 0; trial < 800; ++trial) {
    SCOPED_TRACE(trial);
    ExpectOneMaskMatches(RandomMask(random, true), random() % 18, random() % 18);
    if (HasFatalFailure()) return;
  }
}

TEST(MaskTest, PackedSequencesNeverSeeEachOtherAndHaveTheirOwnMasks) {
  constexpr uint32_t kSeed = 43;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  for (int trial = 0; trial < 300; ++trial) {
    SCOPED_TRACE(trial);
    std::vector<Mask> masks = {RandomMask(random, false), RandomMask(random, false)};
    std::vector<Sequence> sequences;
    for (uint32_t i = 1 + random() % 4; i > 0; --i) {
      sequences.push_back(Seq(random() % 6, random() % 6, random() % 2));
    }
    ExpectMatches(
        SpecOf(sequences, masks), 0, [&](const Sequence& s) { return masks[s.mask]; }, 2);
    if (HasFatalFailure()) return;
  }
}

TEST(MaskTest, HeadsFollowTheMaskOfTheGroupThatNamesThem) {
  Mask causal, window, first_keys;
  causal.causal = true;
  window.window_left = 1;
  window.query_heads = {1, 2};
  first_keys.window_right = 0;
  first_keys.always_visible = 1;
  // Group 0: causal, but heads 1 and 2 have a window. Group 2: one mask for all heads.
  const AttentionSpec spec = SpecOf({Seq(4, 6, 0), Seq(3, 3, 2)}, {causal, window, first_keys}, 4);
  for (int32_t head = 0; head < 4; ++head) {
    SCOPED_TRACE(head);
    const Mask& first = head == 1 || head == 2 ? window : causal;
    ExpectMatches(
        spec, head, [&](const Sequence& s) { return s.mask == 0 ? first : first_keys; }, 2);
  }
  EXPECT_EQ(ClassesOf(spec), (std::vector<int32_t>{0, 1, 1, 0}));
}

TEST(MaskTest, AFirstGroupOfNamedHeadsOnlyLeavesTheOthersFull) {
  Mask causal;
  causal.causal = true;
  causal.query_heads = {2};
  const AttentionSpec spec = SpecOf({Seq(3, 3)}, {causal}, 3);
  ExpectMatches(
      spec, 2, [&](const Sequence&) { return causal; }, 2);
  ExpectMatches(
      spec, 1, [](const Sequence&) { return Mask(); }, 2);
  EXPECT_EQ(ClassesOf(spec), (std::vector<int32_t>{0, 0, 1}));
}

TEST(MaskTest, HeadsAreTakenInRunsOfWholeGroups) {
  Mask causal, window;
  causal.causal = true;
  window.window_left = 1;
  for (int32_t head = 0; head < 24; ++head) {
    if (head % 2 == 1) window.query_heads.push_back(head);
  }
  AttentionSpec spec = SpecOf({Seq(3, 3)}, {causal, window}, 24);
  spec.kv_heads = 12;  // Equal groups of two: one run of two classes.
  {
    const MaskMap map(spec);
    ASSERT_EQ(map.head_runs().size(), 1u);
    EXPECT_EQ(map.head_runs()[0].heads, (std::vector<int32_t>{0, 1}));
  }
  spec.kv_heads = 24;  // 24 runs of one head exceed the number that is distinguished.
  {
    const MaskMap map(spec);
    ASSERT_EQ(map.head_runs().size(), 1u);
    EXPECT_EQ(map.head_runs()[0].end, 24);
  }
  spec.masks[1].query_heads = {12, 13, 14, 15};
  const MaskMap map(spec);
  ASSERT_EQ(map.head_runs().size(), 3u);
  EXPECT_EQ(map.head_runs()[1].begin, 12);
  EXPECT_EQ(map.head_runs()[1].end, 16);
  EXPECT_EQ(map.head_runs()[1].heads, (std::vector<int32_t>{12}));
}

TEST(MaskTest, EqualMasksAreOne) {
  Mask window, again;
  window.window_left = again.window_left = 3;
  again.query_heads = {1};
  EXPECT_EQ(ClassesOf(SpecOf({Seq(3, 3)}, {window, again}, 3)), (std::vector<int32_t>{0, 0, 0}));
}

// With the most ranges, each query still takes only a few look-ups.
TEST(MaskTest, LongRangeListsAreQuick) {
  const int64_t n = 4096 * 256;
  Mask documents;
  for (int64_t i = 0; i < 4096; ++i) {
    documents.ranges.push_back(
        {i * 256, (i + 1) * 256, i * 256, (i + 1) * 256, MaskRange::Kind::kCausal});
  }
  const MaskMap map(SpecOf({Seq(n, n)}, {documents}));
  EXPECT_EQ(map.Area(0, {0, n}, {0, n}), 4096 * (256 * 257 / 2));
  for (int64_t row = 0; row < n; row += 3) {
    ASSERT_EQ(map.Visible(0, 0, row), (Intervals{{row / 256 * 256, row + 1}}));
  }
  EXPECT_TRUE(map.SeesAny(0, {1000, 2000}, {1999, 5000}));
  EXPECT_FALSE(map.SeesAny(0, {1000, 2000}, {2000, 5000}));
}

// Hundreds of pieces. Some are looked up one by one, others in blocks.
TEST(MaskTest, RangeListsOfManyPiecesSayWhatTheirRowsSee) {
  std::mt19937 random(7);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  AttentionSpec spec;
  spec.q_heads = spec.kv_heads = 1;
  spec.sequences = {{700, 300, "", 0, 0}};
  Mask& mask = spec.masks.emplace_back();
  for (int64_t row = 0; row < 700; row += 2) {
    const int64_t key = below(280);
    mask.ranges.push_back(
        {row, row + 1 + below(4), key, key + below(20), static_cast<MaskRange::Kind>(below(4))});
  }
  const MaskMap map(spec);
  for (int i = 0; i < 300; ++i) {
    const int64_t first = below(701), from = below(301);
    const Interval rows{first, first + below(701 - first) + 1};
    const Interval keys{from, from + below(i % 3 == 0 ? 4 : 301)};
    std::vector<Interval> seen;
    int64_t area = 0;
    for (int64_t row = rows.begin; row < std::min<int64_t>(700, rows.end); ++row) {
      for (const Interval& visible : map.Visible(0, 0, row)) {
        seen.push_back(visible);
        area += Intersect(visible, keys).length();
      }
    }
    EXPECT_EQ(map.Area(0, rows, keys), area) << i;
    EXPECT_EQ(map.SeesAny(0, rows, keys), area > 0) << i;
    EXPECT_EQ(map.VisibleToAny(0, rows), Normalized(std::move(seen))) << i;
  }
}

TEST(MaskTest, NoMaskIsFullAndOneClass) {
  const AttentionSpec spec = SpecOf({Seq(2, 3), Seq(0, 2), Seq(2, 0)}, {}, 5);
  ExpectMatches(
      spec, 4, [](const Sequence&) { return Mask(); }, 1);
  EXPECT_EQ(ClassesOf(spec), (std::vector<int32_t>(5, 0)));
}

TEST(MaskTest, ABitMaskIsNeverFull) {
  Mask bits;
  bits.bit_mask = true;
  EXPECT_EQ(MaskMap(SpecOf({Seq(2, 2)}, {bits})).Classify(0, {0, 2}, {0, 2}), Coverage::kPartial);
}

TEST(MaskTest, PositionsAreByTheAlignmentOfTheHeadsMask) {
  Mask top_left;
  top_left.alignment = Mask::Alignment::kTopLeft;
  top_left.query_heads = {1};
  const MaskMap map(SpecOf({Seq(2, 5), Seq(4, 1)}, {Mask(), top_left}, 2));
  const int64_t bottom_right[] = {3, 4, 5 - 3, 5 - 2, 5 - 1, 5};
  const int64_t first[] = {0, 1, 5, 6, 7, 8};
  for (int64_t row = 0; row < 6; ++row) {
    EXPECT_EQ(map.Position(0, row), bottom_right[row]) << row;
    EXPECT_EQ(map.Position(1, row), first[row]) << row;
  }
}

TEST(MaskTest, LargestValuesDoNotOverflow) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  Mask mask;
  mask.causal = true;
  mask.window_left = mask.window_right = mask.chunk = mask.prefix = mask.always_visible = most;
  const MaskMap map(SpecOf({Seq(5, 3)}, {mask}));
  EXPECT_EQ(map.Visible(0, 0, 0), (Intervals{{0, 3}}));
  EXPECT_EQ(map.Area(0, {0, 5}, {0, 3}), 15);
}

TEST(MaskTest, AreaOfALongCausalSequenceIsInstant) {
  const int64_t n = int64_t{1} << 26;
  Mask causal;
  causal.causal = true;
  const MaskMap map(SpecOf({Seq(n, n)}, {causal}));
  EXPECT_EQ(map.Area(0, {0, n}, {0, n}), n * (n + 1) / 2);
  EXPECT_EQ(map.Classify(0, {n / 2, n}, {0, n / 2}), Coverage::kFull);
  EXPECT_EQ(map.Classify(0, {0, n / 2}, {n / 2, n}), Coverage::kEmpty);
}

}  // namespace
}  // namespace annulus

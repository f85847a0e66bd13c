#include "attention/spec/received_ranges.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/error.h"

namespace annulus {
namespace {

TEST(ArrivedCellsTest, EmptyTensorIsComplete) {
  EXPECT_TRUE(ReceivedRanges(0, 4).complete());
  EXPECT_TRUE(ReceivedRanges(0, 4).MissingRows(10).empty());
  EXPECT_FALSE(ReceivedRanges(1, 4).complete());
}

TEST(ArrivedCellsTest, RowsInOrderStayOneFragment) {
  ReceivedRanges coverage(1000, 8, /*max_fragments=*/2);  // Two fragments are the limit.
  for (int64_t row = 0; row < 1000; row += 10) {
    ASSERT_TRUE(coverage.Add({row, row + 10, 0, 8}).ok());
  }
  EXPECT_TRUE(coverage.complete());
}

TEST(ArrivedCellsTest, MissingRowsStopAtTheLimit) {
  ReceivedRanges coverage(100, 1);
  for (int64_t row = 0; row < 100; row += 2) ASSERT_TRUE(coverage.Add({row, row + 1, 0, 1}).ok());
  EXPECT_EQ(coverage.MissingRows(7).size(), 7);
  EXPECT_EQ(coverage.MissingRows(1000).size(), 50);
}

TEST(ArrivedCellsTest, TooManyFragmentsAreRefused) {
  ReceivedRanges coverage(int64_t{1} << 30, 1);
  absl::Status status;
  size_t added = 0;
  for (int64_t row = 0; status.ok() && added <= ReceivedRanges::kMaxFragments; row += 2, ++added) {
    status = coverage.Add({row, row + 1, 0, 1});
  }
  EXPECT_EQ(DetailOf(status).reason, "TOO_MANY_FRAGMENTS");
  EXPECT_EQ(added, ReceivedRanges::kMaxFragments + 1);
}

// The same set as a plain table of cells.
class Cells {
 public:
  Cells(int64_t rows, int32_t heads) : rows_(rows), heads_(heads), set_(rows * heads) {}
  void Add(const CellRect& rect) {
    for (int64_t r = rect.row_begin; r < rect.row_end; ++r)
      for (int32_t h = rect.head_begin; h < rect.head_end; ++h) set_[r * heads_ + h] = true;
  }
  bool Intersects(const CellRect& rect) const {
    for (int64_t r = rect.row_begin; r < rect.row_end; ++r)
      for (int32_t h = rect.head_begin; h < rect.head_end; ++h)
        if (set_[r * heads_ + h]) return true;
    return false;
  }
  int64_t Count() const { return std::count(set_.begin(), set_.end(), true); }
  std::vector<Interval> Missing() const {
    std::vector<Interval> missing;
    for (int64_t r = 0; r < rows_; ++r) {
      const auto row = set_.begin() + r * heads_;
      if (std::count(row, row + heads_, true) == heads_) continue;
      if (!missing.empty() && missing.back().end == r) {
        ++missing.back().end;
      } else {
        missing.push_back({r, r + 1});
      }
    }
    return missing;
  }

 private:
  int64_t rows_;
  int32_t heads_;
  std::vector<bool> set_;
};

CellRect RandomRect(std::mt19937* random, int64_t rows, int32_t heads) {
  CellRect rect;
  rect.row_begin = (*random)() % rows;
  rect.row_end = rect.row_begin + 1 + (*random)() % (rows - rect.row_begin);
  if ((*random)() % 2 == 0) rect.row_end = std::min(rect.row_end, rect.row_begin + 3);
  rect.head_begin = (*random)() % heads;
  rect.head_end = rect.head_begin + 1 + (*random)() % (heads - rect.head_begin);
  if ((*random)() % 3 == 0) rect.head_begin = 0, rect.head_end = heads;
  return rect;
}

TEST(ArrivedCellsTest, AgreesWithATableOfCells) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const int64_t rows = 1 + random() % 40;
    const int32_t heads = 1 + random() % 6;
    // The limit exceeds the number of cells; otherwise one more rectangle might be refused.
    ReceivedRanges coverage(rows, heads, static_cast<size_t>(rows * heads) + 1);
    Cells cells(rows, heads);
    for (int i = 0; i < 60 && !coverage.complete(); ++i) {
      const CellRect rect = RandomRect(&random, rows, heads);
      ASSERT_EQ(coverage.Intersects(rect), cells.Intersects(rect));
      ASSERT_TRUE(coverage.Add(rect).ok());
      cells.Add(rect);
      ASSERT_EQ(coverage.cells(), cells.Count());
      ASSERT_EQ(coverage.complete(), cells.Count() == rows * heads);
      ASSERT_EQ(coverage.MissingRows(1000), cells.Missing());
    }
  }
}

}  // namespace
}  // namespace annulus

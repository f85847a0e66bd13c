#ifndef ANNULUS_ATTENTION_SHARDING_ROW_MAP_H_
#define ANNULUS_ATTENTION_SHARDING_ROW_MAP_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "attention/mask/mask.h"

namespace annulus {

// `count` runs of `block` rows. Run i starts at begin + i * stride. stride >= block > 0.
struct RowRange {
  int64_t begin = 0;
  int64_t block = 0;
  int64_t stride = 0;
  int64_t count = 0;
  friend bool operator==(const RowRange& a, const RowRange& b) {
    return a.begin == b.begin && a.block == b.block && a.stride == b.stride && a.count == b.count;
  }
};

// The rows of one shard: maps local rows 0, 1, … to packed (global) rows of the job. Global rows
// increase with local rows. So the keys of a global interval are an interval of local rows, in
// every layout. Immutable; look-ups take O(log ranges).
class RowMap {
 public:
  RowMap() = default;
  // `ranges` must be increasing and disjoint (checked by assert).
  explicit RowMap(std::vector<RowRange> ranges);

  int64_t rows() const { return rows_; }
  const std::vector<RowRange>& ranges() const { return ranges_; }

  // The global row of `local`, which must be in [0, rows()).
  int64_t Global(int64_t local) const;
  // The first local row whose global row is >= `global`; rows() if there is none.
  int64_t LowerBound(int64_t global) const;
  // Calls fn(local, global, count) for each maximal run of rows in `local` that are also
  // consecutive globally.
  void ForEachRun(Interval local, absl::FunctionRef<void(int64_t, int64_t, int64_t)> fn) const;
  // The smallest interval of global rows that holds those of `local`, which must not be empty.
  Interval Hull(Interval local) const { return {Global(local.begin), Global(local.end - 1) + 1}; }
  // The local rows whose global rows lie in `global`. They form an interval.
  Interval Local(Interval global) const {
    return {LowerBound(global.begin), LowerBound(global.end)};
  }

 private:
  std::vector<RowRange> ranges_;
  std::vector<int64_t> local_begin_;  // First local row of each range.
  int64_t rows_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SHARDING_ROW_MAP_H_

#ifndef ANNULUS_WORKER_KERNEL_CPU_VISIBLE_BLOCKS_H_
#define ANNULUS_WORKER_KERNEL_CPU_VISIBLE_BLOCKS_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "attention/spec/interval.h"
#include "worker/kernel/attention_kernel.h"

namespace annulus {

// The blocks of keys (of kKeyBlock) that the query rows of each stripe see, for one head. Immutable
// after construction.
class VisibleBlocks {
 public:
  // The visible keys of a row: sorted, disjoint.
  using KeysOf = absl::FunctionRef<absl::Span<const Interval>(int64_t row)>;

  VisibleBlocks() = default;
  // `stripes` has the rows of each stripe; `keys_of` is called once for each row. Each stripe
  // counts as progress. If `control` is stopped, the stripes not yet looked at have no blocks.
  VisibleBlocks(absl::Span<const Interval> stripes, KeysOf keys_of, const KernelControl& control);

  // Sorted, disjoint, non-adjacent.
  absl::Span<const Interval> Of(int64_t stripe) const {
    return absl::MakeConstSpan(blocks_).subspan(first_[stripe],
                                                first_[stripe + 1] - first_[stripe]);
  }
  bool Has(int64_t stripe, int64_t block) const;

 private:
  std::vector<Interval> blocks_;  // Stripe s has [first_[s], first_[s + 1]).
  std::vector<int64_t> first_;
};

// The cells of each stripe on numbered lines, for a walk line by line.
class CellLines {
 public:
  // Adds a cell of the stripe on each of these lines. A line has at most one cell of a stripe.
  void Add(int64_t stripe, Interval lines);

  // Calls cell(line, stripe) for the cells of lines 0, 1, … of `lines`, by increasing stripe within
  // a line, and done(line) after each line. Stops when done returns false, and returns false then.
  // The time is proportional to cells plus lines.
  bool ForEach(int64_t lines, absl::FunctionRef<void(int64_t line, int64_t stripe)> cell,
               absl::FunctionRef<bool(int64_t line)> done);

 private:
  struct Edge {
    int64_t line, stripe;
  };
  std::vector<Edge> begins_, ends_;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_KERNEL_CPU_VISIBLE_BLOCKS_H_

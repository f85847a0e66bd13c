#ifndef ANNULUS_WORKER_KERNEL_CPU_VISIBLE_BLOCKS_H_
#define ANNULUS_WORKER_KERNEL_CPU_VISIBLE_BLOCKS_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "attention/spec/interval.h"
#include "worker/kernel/attention_kernel.h"

namespace annulus {

// Which blocks of keys (of kKeyBlock) the query rows of each stripe see, for one head. Immutable
// after construction.
class VisibleBlocks {
 public:
  // Visible keys of a row: sorted, disjoint.
  using KeysOf = absl::FunctionRef<absl::Span<const Interval>(int64_t row)>;

  VisibleBlocks() = default;
  // `stripes` holds the rows of each stripe, and each of those is asked for once. Each stripe
  // counts as progress. Told to stop, it says that stripes it has not looked at see nothing.
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

// Where the cells of each stripe lie on numbered lines, for who goes through cells line by line.
class CellLines {
 public:
  // The stripe has a cell on each of these lines. A line has at most one cell of a stripe.
  void Add(int64_t stripe, Interval lines);

  // Calls cell(line, stripe) for the cells of line 0, 1, … of `lines`, those of each line by
  // increasing stripe, and done(line) after each line, until that returns false, and then does so
  // too. Costs what there are cells and lines.
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

#ifndef ANNULUS_ATTENTION_SCHEDULE_STRATEGIES_KEY_GRADIENTS_H_
#define ANNULUS_ATTENTION_SCHEDULE_STRATEGIES_KEY_GRADIENTS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "attention/schedule/model/needs.h"
#include "attention/schedule/model/row_set.h"
#include "attention/schedule/model/schedule_writer.h"
#include "attention/schedule/strategies/ring_route.h"

namespace annulus {

// The route of the gradients of a travelling block of keys. Each stop computes its own gradients of
// the keys while the sums of earlier stops arrive, adds these, and sends the sum on. The last stop
// sends the sum home in the step after that. Immutable.
class KeyGradients {
 public:
  // `keys` is the block without its rows. The block visits `visits` in this order, the first in
  // step `step` and one more in each step after it. Members that need none of its rows are no
  // stops.
  KeyGradients(const Needs& needs, const Block& keys, absl::Span<const Ring::Member> visits,
               int32_t step);

  // Writes the part of stop `rank`: transfers, and one buffer of its own gradients for each
  // interval of rows. `home` is the owner of the keys. Returns the buffers. Requires: `rank` is a
  // stop.
  std::vector<Ring::Part> Visit(int32_t rank, int32_t home, ScheduleWriter* writer) const;
  // Writes the part of the owner, whose gradients of these keys are in buffer `target`.
  void ComeHome(int32_t target, ScheduleWriter* writer) const;

 private:
  struct Stop {
    int32_t rank = 0, step = 0;
    RowSet rows;  // The rows that this stop or an earlier one needs.
  };

  Block keys_;
  std::vector<Stop> stops_;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_STRATEGIES_KEY_GRADIENTS_H_

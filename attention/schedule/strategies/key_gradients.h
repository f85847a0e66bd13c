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

// The way of the gradients of a block of keys that travels. A stop makes its own gradients of the
// keys while those of the stops before it arrive, adds these, and sends the sum on; the last stop
// sends it home in the step after that.
class KeyGradients {
 public:
  // `keys` is the block, but for its rows. It meets `visits` in this order, the first in step
  // `step`; those that want none of its rows are no stops.
  KeyGradients(const Needs& needs, const Block& keys, absl::Span<const Ring::Member> visits,
               int32_t step);

  // The part of a stop: buffers for the gradients that it makes, one for each interval of rows.
  std::vector<Ring::Part> Visit(int32_t rank, int32_t home, ScheduleWriter* writer) const;
  // The part of the owner, whose gradients of these keys are in buffer `target`.
  void ComeHome(int32_t target, ScheduleWriter* writer) const;

 private:
  struct Stop {
    int32_t rank = 0, step = 0;
    RowSet rows;  // That it or a stop before it wants.
  };

  Block keys_;
  std::vector<Stop> stops_;
};

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_STRATEGIES_KEY_GRADIENTS_H_

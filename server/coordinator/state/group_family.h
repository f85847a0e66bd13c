#ifndef ANNULUS_SERVER_COORDINATOR_STATE_GROUP_FAMILY_H_
#define ANNULUS_SERVER_COORDINATOR_STATE_GROUP_FAMILY_H_

#include <cstdint>
#include <vector>

namespace annulus {

// The laminar family of groups over workers in locality order. The workers are cut into blocks of
// `max_size` (at least 1), the largest number of ranks of a job. The family has each whole block,
// and every aligned run of 2, 4, 8, … workers of a block. Two groups are disjoint, or one contains
// the other. Groups of one are left out: one worker needs no communicator. The largest groups come
// first, then locality order. At most `order.size()` groups.
std::vector<std::vector<int64_t>> GroupFamily(const std::vector<int64_t>& order, int32_t max_size);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_GROUP_FAMILY_H_

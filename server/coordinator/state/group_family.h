#ifndef ANNULUS_SERVER_COORDINATOR_STATE_GROUP_FAMILY_H_
#define ANNULUS_SERVER_COORDINATOR_STATE_GROUP_FAMILY_H_

#include <cstdint>
#include <vector>

namespace annulus {

// The laminar family of groups over workers in locality order, which are cut into blocks of
// `max_size` (at least 1), the most ranks that a job may have: of each block all, and every aligned
// run of 2, 4, 8, … of them. Two groups are disjoint or one holds the other. Groups of one are not
// among them: one worker needs no communicator. Largest first, then in locality order; at most
// `order.size()` groups.
std::vector<std::vector<int64_t>> GroupFamily(const std::vector<int64_t>& order, int32_t max_size);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_GROUP_FAMILY_H_

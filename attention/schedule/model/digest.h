#ifndef ANNULUS_ATTENTION_SCHEDULE_MODEL_DIGEST_H_
#define ANNULUS_ATTENTION_SCHEDULE_MODEL_DIGEST_H_

#include <cstdint>
#include <vector>

#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// A digest of what a rank will exchange with one peer, in order. Hashes the step number and the
// region (kind, shard, rows, heads) of each send and of each receive. A group may start only if
// sends of a to b and receives of b from a are equal for all pairs.
struct PeerDigest {
  int32_t peer = 0;
  uint64_t sends = 0;
  uint64_t receives = 0;
};

// One entry for each peer that the schedule names, by increasing peer. Every machine gets the same
// hashes: FNV-1a, 64 bits, over little-endian integers.
std::vector<PeerDigest> PeerDigests(const RankSchedule& schedule);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_MODEL_DIGEST_H_

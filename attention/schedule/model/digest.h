#ifndef ANNULUS_ATTENTION_SCHEDULE_MODEL_DIGEST_H_
#define ANNULUS_ATTENTION_SCHEDULE_MODEL_DIGEST_H_

#include <cstdint>
#include <vector>

#include "attention/schedule/model/schedule_data.h"

namespace annulus {

// What a rank will exchange with one peer, in order: hashes of the step number and the region
// (kind, shard, rows, heads) of every send and of every receive. Equal send(a→b) and receive(b←a)
// for all pairs is what allows a group to start.
struct PeerDigest {
  int32_t peer = 0;
  uint64_t sends = 0;
  uint64_t receives = 0;
};

// One entry for each peer that the schedule names, in increasing order. The same on every machine
// (FNV-1a, 64 bits, over little-endian integers).
std::vector<PeerDigest> PeerDigests(const RankSchedule& schedule);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SCHEDULE_MODEL_DIGEST_H_

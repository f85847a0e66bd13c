#ifndef ANNULUS_SERVER_COORDINATOR_STATE_PLAN_SHAPE_H_
#define ANNULUS_SERVER_COORDINATOR_STATE_PLAN_SHAPE_H_

#include <cstdint>

#include "attention/spec/spec.h"

namespace annulus {

// What planning a job goes through, as far as its spec says.
struct PlanShape {
  int64_t classes = 1;   // Of heads.
  int64_t followed = 0;  // Sequences, each × the masks that some head follows there.
  int64_t pieces = 0;    // Chunks and ranges of those, where they cut a sequence.
  int64_t spans = 0;     // As many keys as a row sees, one behind the other: those of a window too.
  double rows = 0;       // Of queries, × query heads.
  double pairs = 0;      // Of these and keys, at most.
  double keys = 0;       // × key/value heads, at most.
};

// Of a valid spec, in time that is linear in `followed`.
PlanShape PlanShapeOf(const AttentionSpec& spec);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_PLAN_SHAPE_H_

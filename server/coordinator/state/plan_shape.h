#ifndef ANNULUS_SERVER_COORDINATOR_STATE_PLAN_SHAPE_H_
#define ANNULUS_SERVER_COORDINATOR_STATE_PLAN_SHAPE_H_

#include <cstdint>

#include "attention/spec/spec.h"

namespace annulus {

// The size of a planning problem, as far as the spec determines it.
struct PlanShape {
  int64_t classes = 1;   // Classes of heads.
  int64_t followed = 0;  // Sequences, each × the masks that some head follows in it.
  int64_t pieces = 0;    // Chunks and ranges of those, if they cut a sequence.
  int64_t spans = 0;     // Runs of as many keys as a row sees, including windows.
  double rows = 0;       // Query rows × query heads.
  double pairs = 0;      // Visible pairs × query heads, at most.
  double keys = 0;       // Key rows × key/value heads, at most.
};

// Requires a valid spec. Takes time linear in `followed`.
PlanShape PlanShapeOf(const AttentionSpec& spec);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_PLAN_SHAPE_H_

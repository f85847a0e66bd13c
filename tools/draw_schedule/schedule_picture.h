#ifndef ANNULUS_TOOLS_DRAW_SCHEDULE_SCHEDULE_PICTURE_H_
#define ANNULUS_TOOLS_DRAW_SCHEDULE_SCHEDULE_PICTURE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/shard_plan.h"
#include "attention/spec.h"

namespace annulus {

// The schedule to draw. The defaults are docs/pictures/ring_schedule.svg.
struct PictureOptions {
  Strategy strategy = Strategy::kRingPassKv;
  PlanOptions plan = {/*world_size=*/4, Layout::kZigzag, /*stripe=*/1, /*granule=*/1};
  int64_t q_len = 64;
  int64_t kv_len = 64;
  bool causal = true;
};

// Ranks × steps, from the schedule's data alone. In each cell the attention matrix (queries down,
// keys across): grey is what the mask shows, a rectangle is a task, in the colour of the keys'
// owner, solid where it is full. An arrow is a transfer, from the step that moves it to the step
// after.
absl::StatusOr<std::string> DrawSvg(const PictureOptions& options);

// The same as lines of text.
absl::StatusOr<std::string> DrawText(const PictureOptions& options);

}  // namespace annulus

#endif  // ANNULUS_TOOLS_DRAW_SCHEDULE_SCHEDULE_PICTURE_H_

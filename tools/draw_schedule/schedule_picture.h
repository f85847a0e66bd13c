#ifndef ANNULUS_TOOLS_DRAW_SCHEDULE_SCHEDULE_PICTURE_H_
#define ANNULUS_TOOLS_DRAW_SCHEDULE_SCHEDULE_PICTURE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/sharding/shard_plan.h"
#include "attention/spec/spec.h"

namespace annulus {

// The schedule to draw. The defaults are docs/pictures/ring_schedule.svg.
struct PictureOptions {
  Strategy strategy = Strategy::kRingPassKv;
  PlanOptions plan = {/*world_size=*/4, Layout::kZigzag, /*stripe=*/1, /*granule=*/1};
  int64_t q_len = 64;
  int64_t kv_len = 64;
  bool causal = true;
  int64_t window = 0;  // The number of keys before a query that it sees. 0: all.
  int32_t heads = 1;   // Query heads and key/value heads.
  // 0: the first degrees of ResolveDegrees.
  int32_t ulysses_degree = 0, inner_ring_degree = 0;
};

// The pictures of docs/explanation/strategies.md: file names in docs/pictures, and their options.
std::vector<std::pair<std::string, PictureOptions>> DocumentedPictures();

// Draws ranks × steps from the schedule's data alone. Each cell has the attention matrix (queries
// down, keys across): visible pairs are grey; a task is a rectangle in the colour of the keys'
// owner, solid if it is full. An arrow is a transfer, from its step to the next: solid for keys,
// dashed for queries, dotted for partials or outputs.
absl::StatusOr<std::string> DrawSvg(const PictureOptions& options);

// The same schedule as lines of text.
absl::StatusOr<std::string> DrawText(const PictureOptions& options);

}  // namespace annulus

#endif  // ANNULUS_TOOLS_DRAW_SCHEDULE_SCHEDULE_PICTURE_H_

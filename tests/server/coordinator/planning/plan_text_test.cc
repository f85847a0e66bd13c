#include <gtest/gtest.h>

#include "server/coordinator/job_view.h"

namespace annulus {
namespace {

Execution Ring(int32_t workers) {
  Execution execution;
  execution.strategy = Strategy::kRingPassKv;
  execution.layout = Layout::kZigzag;
  execution.world_size = workers;
  execution.ulysses_degree = 1;
  execution.ring_degree = workers;
  return execution;
}

Cost Of(double seconds, std::vector<int64_t> bytes) {
  Cost cost;
  cost.expected_seconds = seconds;
  cost.bytes_sent = std::move(bytes);
  return cost;
}

TEST(PlanTextTest, AWayIsToldWithItsTimeAndBytes) {
  EXPECT_EQ(WayText(Ring(2), Of(0.0031, {10, 4194304})),
            "ring-pass-kv, zigzag, 2 workers: 3.1 ms, at most 4194304 bytes a worker");
  EXPECT_EQ(WayText(Ring(1), Of(2, {0})),
            "ring-pass-kv, zigzag, 1 worker: 2e+03 ms, at most 0 bytes a worker");
  Execution grid = Ring(6);
  grid.strategy = Strategy::kUlyssesRing;
  grid.ulysses_degree = 2;
  grid.ring_degree = 3;
  EXPECT_EQ(WayText(grid, Of(0.5, {7})),
            "ulysses-ring, zigzag, 2 x 3, 6 workers: 500 ms, at most 7 bytes a worker");
}

TEST(PlanTextTest, ARejectedOneIsToldWithItsReason) {
  EXPECT_EQ(RejectedText({Ring(2), Of(0.004, {}), "a bound of its time is more"}),
            "rejected ring-pass-kv, zigzag, 2 workers: 4 ms: a bound of its time is more");
}

}  // namespace
}  // namespace annulus

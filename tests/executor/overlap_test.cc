// Measures time: runs alone.

#include <algorithm>

#include "tests/comm/faulty_communicator.h"
#include "tests/executor/job_runner.h"
#include "tests/executor/probe_kernel.h"

namespace annulus {
namespace {

class ExecutorOverlap : public testing::TestWithParam<Strategy> {};

// On a link on which a step's transfer takes as long as its tasks, little of it shows. Both times
// come from the clock, so the ratio is one of a single run.
TEST_P(ExecutorOverlap, TransfersHideBehindTasks) {
  constexpr absl::Duration kStepTime = absl::Milliseconds(200);
  JobCase job;
  job.spec = SmallSpec(DataType::kFp32, 4, 400);
  job.execution.strategy = GetParam();
  job.plan.world_size = 2;
  JobRunner runner(job);
  ASSERT_TRUE(runner.status().ok()) << runner.status();
  const int64_t block = 200 * 2 * 20 * 4;  // Half the rows, 2 heads of 8 and 12 fp32 numbers.
  Faults faults;
  faults.bytes_per_second = static_cast<double>(block) / absl::ToDoubleSeconds(kStepTime);
  Group group = ConnectedGroup(
      [&](int32_t size) {
        Group made = GlooGroup(size);
        for (auto& comm : made) {
          comm = std::make_unique<FaultyCommunicator>(std::move(comm), faults);
        }
        return made;
      },
      2);
  ASSERT_FALSE(group.empty());
  ASSERT_TRUE(runner.RunAndJudge(
      group, [&] { return std::make_unique<ProbeKernel>([&] { return BusyFor(kStepTime); }); }));
  for (int32_t r = 0; r < 2; ++r) {
    const auto& link = static_cast<const FaultyCommunicator&>(*group[r]);
    EXPECT_EQ(link.throttled_bytes(), block);
    const ExecutionStats& stats = runner.rank(r).executor()->stats();
    EXPECT_EQ(stats.tasks, 2);
    const double transfer = absl::ToDoubleSeconds(kStepTime);
    const double tasks = 2 * absl::ToDoubleSeconds(kStepTime);
    const double exposed = absl::ToDoubleSeconds(stats.exposed_communication);
    RecordProperty("exposed_over_smaller", std::to_string(exposed / std::min(tasks, transfer)));
    EXPECT_LE(exposed, 0.3 * std::min(tasks, transfer)) << "rank " << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, ExecutorOverlap,
                         testing::Values(Strategy::kRingPassKv, Strategy::kAllGatherKv,
                                         Strategy::kRotateKv));

}  // namespace
}  // namespace annulus

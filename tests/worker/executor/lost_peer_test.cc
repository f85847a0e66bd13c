// Any rank may be lost at any of its messages, in every strategy: no rank waits for it for ever,
// and no rank returns a wrong result.

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <utility>
#include <vector>

#include "attention/spec/parallel_degrees.h"
#include "base/status_macros.h"
#include "tests/attention/schedule/schedule_cases.h"
#include "tests/worker/comm/faulty_communicator.h"
#include "tests/worker/executor/executor_harness.h"

namespace annulus {
namespace {

constexpr int32_t kRanks = 4;

// One job of each strategy, forward and backward.
std::vector<JobCase> Jobs() {
  std::vector<JobCase> jobs;
  for (const Operation operation : {Operation::kForward, Operation::kGradients}) {
    for (const Strategy strategy : TestStrategies()) {
      JobCase job;
      job.spec = SmallSpec(DataType::kFp32, 40, 40);
      job.spec.operation = operation;
      job.plan.world_size = kRanks;
      Execution open;
      open.strategy = strategy;
      job.execution = ResolveDegrees(open, kRanks, job.spec.q_heads).at(0);
      jobs.push_back(job);
    }
  }
  return jobs;
}

// The state of a rank at its end.
struct RankEnd {
  absl::Status status;
  std::vector<std::vector<std::byte>> outputs;
};

// Runs the job in a group in which `lost` fails at its message `at` (0: no failure). True if it got
// that far.
bool RunLosing(const JobCase& job, const std::shared_ptr<const JobInputs>& inputs, int32_t lost,
               int64_t at, std::vector<RankEnd>* ends) {
  Faults faults;
  faults.fail_at_message = at;
  FaultyCommunicator* faulty = nullptr;
  Group group = ConnectedGroup(
      [&](int32_t size) {
        Group made = InProcessGroup(size, absl::ZeroDuration(), 0);
        auto losing = std::make_unique<FaultyCommunicator>(std::move(made[lost]), faults);
        faulty = losing.get();
        made[lost] = std::move(losing);
        return made;
      },
      kRanks);
  JobRunner runner(job, inputs);
  EXPECT_TRUE(runner.status().ok()) << Describe(job) << ": " << runner.status();
  ReferenceKernel kernel;
  const auto options = [&](int32_t r) { return OptionsOf(&kernel, group[r].get()); };
  const auto statuses = RunBodies(runner, options, [&](int32_t r, Executor& executor) {
    const auto steps = static_cast<int32_t>(runner.rank(r).program().schedule.steps.size());
    RETURN_IF_ERROR(executor.Run({0, steps}));
    return executor.CopyOut(runner.rank(r).staged());
  });
  ends->clear();
  for (int32_t r = 0; r < kRanks; ++r) ends->push_back({statuses[r], runner.rank(r).Outputs()});
  return faulty->failed() > 0;
}

TEST(LostPeerTest, AtAnyMessageOfAnyRankNobodyHangsAndNoResultIsWrong) {
  int64_t losses = 0, results = 0;
  for (const JobCase& job : Jobs()) {
    SCOPED_TRACE(Describe(job));
    const auto inputs = MakeInputs(job.spec, job.seed);
    std::vector<RankEnd> whole, ends;
    ASSERT_FALSE(RunLosing(job, inputs, 0, 0, &whole));
    for (const RankEnd& end : whole) ASSERT_TRUE(end.status.ok()) << end.status;
    for (int32_t lost = 0; lost < kRanks; ++lost) {
      int64_t at = 1;
      for (; RunLosing(job, inputs, lost, at, &ends); ++at) {
        EXPECT_EQ(ends[lost].status.code(), absl::StatusCode::kUnavailable) << ends[lost].status;
        for (int32_t r = 0; r < kRanks; ++r) {
          if (ends[r].status.ok()) {
            EXPECT_EQ(ends[r].outputs, whole[r].outputs) << "rank " << r << ", message " << at;
            ++results;
          } else {
            EXPECT_EQ(ends[r].status.code(), absl::StatusCode::kUnavailable) << ends[r].status;
          }
        }
        ++losses;
      }
      EXPECT_GT(at, 1) << "rank " << lost << " has no messages";
    }
  }
  std::cout << losses << " losses, after which ranks had " << results << " results" << std::endl;
}

}  // namespace
}  // namespace annulus

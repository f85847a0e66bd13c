// Effects of failures: on a rank's result, on its peers' results, or on the group's communicator.

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/status_macros.h"
#include "tests/worker/comm/faulty_communicator.h"
#include "tests/worker/executor/executor_harness.h"

namespace annulus {
namespace {

using absl::StatusCode;

TEST(Executor, WhereOnlyInputsTravelAFailedKernelCostsOnlyItsOwnRank) {
  Group group = NewGroup(3);
  ASSERT_FALSE(group.empty());
  JobRunner runner(RingJob(3));
  ProbeKernel failing([] { return absl::ResourceExhaustedError("no memory"); });
  ReferenceKernel kernel;
  const auto options = [&](int32_t r) {
    return OptionsOf(r == 2 ? static_cast<AttentionKernel*>(&failing) : &kernel, group[r].get());
  };
  const auto statuses = RunBodies(runner, options, [&](int32_t r, Executor& executor) {
    RETURN_IF_ERROR(executor.Run({0, 3}));
    return executor.CopyOut(runner.rank(r).staged());
  });
  EXPECT_TRUE(statuses[0].ok()) << statuses[0];
  EXPECT_TRUE(statuses[1].ok()) << statuses[1];
  EXPECT_EQ(statuses[2].code(), StatusCode::kResourceExhausted) << statuses[2];
  EXPECT_EQ(runner.rank(2).executor()->CopyOut(runner.rank(2).staged()).code(),
            StatusCode::kResourceExhausted);
  EXPECT_TRUE(JobRunner(RingJob(3)).RunAndJudge(group, Reference));
}

// A failed rank sends undefined memory, which no rank may use as a result.
TEST(Executor, WhereResultsTravelAFailedKernelCostsAllRanksTheirs) {
  Group group = NewGroup(2);
  ASSERT_FALSE(group.empty());
  JobCase gradients = RingJob(2);
  gradients.spec.operation = Operation::kGradients;
  std::vector<JobCase> jobs{gradients};
  for (Strategy strategy : {Strategy::kUlysses, Strategy::kRingPassQ, Strategy::kTree}) {
    jobs.push_back(RingJob(2));
    jobs.back().execution.strategy = strategy;
    if (strategy == Strategy::kUlysses)
      jobs.back().execution.head_deal = HeadAssignment::kWholeHeads;
  }
  for (const JobCase& job : jobs) {
    JobRunner runner(job);
    ASSERT_TRUE(runner.status().ok()) << runner.status();
    ProbeKernel failing([] { return absl::ResourceExhaustedError("no memory"); });
    ReferenceKernel kernel;
    const auto options = [&](int32_t r) {
      return OptionsOf(r == 1 ? static_cast<AttentionKernel*>(&failing) : &kernel, group[r].get());
    };
    std::vector<absl::Status> output(2);
    const auto ran = RunBodies(runner, options, [&](int32_t r, Executor& executor) {
      const auto steps = static_cast<int32_t>(runner.rank(r).program().schedule.steps.size());
      (void)executor.Run({0, 1});
      const absl::Status status = executor.Run({1, steps});
      output[r] = executor.CopyOut(runner.rank(r).staged());
      return status;
    });
    for (int32_t r = 0; r < 2; ++r) {
      const StatusCode code = r == 1 ? StatusCode::kResourceExhausted : StatusCode::kAborted;
      EXPECT_EQ(ran[r].code(), code) << Describe(job) << ": " << ran[r];
      EXPECT_EQ(output[r].code(), code) << Describe(job) << ": " << output[r];
      EXPECT_EQ(runner.rank(r).executor()->peer_failed(), r == 0);
      EXPECT_FALSE(runner.rank(r).executor()->communicator_failed());
    }
    EXPECT_TRUE(JobRunner(job).RunAndJudge(group, Reference));
  }
}

TEST(Executor, NothingRunsWithoutItsInputs) {
  JobRunner runner(RingJob(1));
  ReferenceKernel kernel;
  runner.rank(0).MakeExecutor(OptionsOf(&kernel, nullptr));
  StagedTensors staged = runner.rank(0).staged();
  staged.data.pop_back();
  EXPECT_FALSE(runner.rank(0).executor()->CopyIn(staged).ok());
  EXPECT_EQ(runner.rank(0).executor()->Run({0, 1}).code(), StatusCode::kInvalidArgument);
}

Group OneThatFails(int32_t ranks) {
  Faults faults;
  faults.fail_at_message = 3;
  return ConnectedGroup(
      [&](int32_t size) {
        Group made = InProcessGroup(size, absl::ZeroDuration(), 0);
        made[0] = std::make_unique<FaultyCommunicator>(std::move(made[0]), faults);
        return made;
      },
      ranks);
}

TEST(Executor, ALostPeerEndsTheRun) {
  Group faulty = OneThatFails(3);
  JobRunner runner(RingJob(3));
  ReferenceKernel kernel;
  const auto statuses = RunBodies(
      runner, [&](int32_t r) { return OptionsOf(&kernel, faulty[r].get()); },
      [&](int32_t, Executor& executor) {
        return executor.Run({0, 3});
      });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  }
}

// A rank with a lost device may lose its peers because of it. The reported cause is the device
// fault.
TEST(Executor, AFaultOfTheDeviceIsToldThoughPeersAreLostToo) {
  Group faulty = OneThatFails(3);
  JobRunner runner(RingJob(3));
  ProbeKernel failing([] {
    return MakeError(StatusCode::kInternal, "a fault",
                     {std::string(kReasonDeviceFault), {}, {}, {}});
  });
  ReferenceKernel kernel;
  const auto options = [&](int32_t r) {
    return OptionsOf(r == 0 ? static_cast<AttentionKernel*>(&failing) : &kernel, faulty[r].get());
  };
  const auto statuses = RunBodies(runner, options, [&](int32_t, Executor& executor) {
    return executor.Run({0, 3});
  });
  EXPECT_TRUE(IsDeviceFault(statuses[0])) << statuses[0];
  EXPECT_TRUE(runner.rank(0).executor()->communicator_failed());
  EXPECT_EQ(statuses[1].code(), StatusCode::kUnavailable) << statuses[1];
}

TEST(Executor, AStepThatTakesTooLongFails) {
  Group group = NewGroup(2);
  ASSERT_FALSE(group.empty());
  JobRunner runner(RingJob(2));
  ReferenceKernel kernel;
  Executor::Options options = OptionsOf(&kernel, group[0].get());
  options.step_timeout = absl::Milliseconds(30);
  runner.rank(0).MakeExecutor(std::move(options));
  Executor& executor = *runner.rank(0).executor();
  ASSERT_TRUE(executor.CopyIn(runner.rank(0).staged()).ok());
  EXPECT_EQ(executor.Run({0, 2}).code(), StatusCode::kDeadlineExceeded);
}

TEST(Executor, AFaultOfTheDeviceCostsTheResult) {
  JobRunner runner(RingJob(1));
  ReferenceKernel kernel;
  ProbeDevice device;
  device.status = absl::InternalError("a fault");
  Executor::Options options = OptionsOf(&kernel, nullptr);
  options.device = &device;
  runner.rank(0).MakeExecutor(options);
  Executor& executor = *runner.rank(0).executor();
  ASSERT_TRUE(executor.CopyIn(runner.rank(0).staged()).ok());
  EXPECT_EQ(executor.Run({0, 1}), device.status);
  EXPECT_FALSE(executor.communicator_failed());
  device.status = absl::OkStatus();
  EXPECT_EQ(executor.CopyOut(runner.rank(0).staged()).code(), StatusCode::kInternal);
  runner.rank(0).MakeExecutor(OptionsOf(&kernel, nullptr));  // Made before the device is destroyed.
}

TEST(Executor, AFaultOfTheDeviceIsNotLostBehindAnotherFailure) {
  JobRunner runner(RingJob(1));
  ProbeKernel failing([] { return absl::CancelledError("stopped"); });
  ProbeDevice device;
  device.status =
      MakeError(StatusCode::kInternal, "a fault", {std::string(kReasonDeviceFault), {}, {}, {}});
  Executor::Options options = OptionsOf(&failing, nullptr);
  options.device = &device;
  runner.rank(0).MakeExecutor(options);
  Executor& executor = *runner.rank(0).executor();
  ASSERT_TRUE(executor.CopyIn(runner.rank(0).staged()).ok());
  const absl::Status ran = executor.Run({0, 1});
  EXPECT_TRUE(IsDeviceFault(ran)) << ran;
  EXPECT_TRUE(IsDeviceFault(executor.CopyOut(runner.rank(0).staged())));
  // Made before the device is destroyed.
  runner.rank(0).MakeExecutor(OptionsOf(&failing, nullptr));
}

}  // namespace
}  // namespace annulus

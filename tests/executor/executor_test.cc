// What the executor does beside computing: segments, cancellation, failures, overlap.

#include "worker/executor/executor.h"

#include <atomic>
#include <functional>
#include <tuple>
#include <vector>

#include "attention/status_macros.h"
#include "tests/comm/faulty_communicator.h"
#include "tests/executor/job_runner.h"
#include "tests/executor/probe_kernel.h"
#include "worker/device/host.h"

namespace annulus {
namespace {

using absl::StatusCode;

std::unique_ptr<AttentionKernel> Reference() { return std::make_unique<ReferenceKernel>(); }

Group NewGroup(int32_t size) {
  return ConnectedGroup([](int32_t n) { return InProcessGroup(n, absl::Microseconds(200), 5); },
                        size);
}

JobCase RingJob(int32_t world) {
  JobCase job;
  job.spec = SmallSpec(DataType::kFp32, 40, 40);
  job.execution.strategy = Strategy::kRingPassKv;
  job.plan.world_size = world;
  return job;
}

// Gives rank r's executor to body(r), with an executor per rank made from options(r).
std::vector<absl::Status> RunBodies(JobRunner& runner,
                                    const std::function<Executor::Options(int32_t)>& options,
                                    const std::function<absl::Status(int32_t, Executor&)>& body) {
  return RunRanks(runner.ranks(), [&](int32_t r) {
    runner.rank(r).MakeExecutor(options(r));
    Executor& executor = *runner.rank(r).executor();
    RETURN_IF_ERROR(executor.CopyIn(runner.rank(r).staged()));
    return body(r, executor);
  });
}

Executor::Options OptionsOf(AttentionKernel* kernel, Communicator* communicator) {
  Executor::Options options;
  options.kernel = kernel;
  options.communicator = communicator;
  return options;
}

// Rank 1 is stopped in the middle of a segment: it runs on without computing, the other ranks
// finish theirs; all run the rest without tasks; then the group runs another job.
TEST(Executor, AStoppedRankKeepsStep) {
  Group group = NewGroup(4);
  ASSERT_FALSE(group.empty());
  JobRunner runner(RingJob(4));
  std::atomic<bool> stop{false};
  ProbeKernel stopping([&, calls = 0]() mutable {
    if (++calls == 2) stop = true;
    return absl::OkStatus();
  });
  ReferenceKernel kernel;
  const auto options = [&](int32_t r) {
    Executor::Options made =
        OptionsOf(r == 1 ? static_cast<AttentionKernel*>(&stopping) : &kernel, group[r].get());
    if (r == 1) made.control.stop = &stop;
    return made;
  };
  std::vector<absl::Status> first(4), output(4);
  const auto rest = RunBodies(runner, options, [&](int32_t r, Executor& executor) {
    first[r] = executor.Run({0, 3}, false);
    const absl::Status status = executor.Run({3, 4}, true);
    output[r] = executor.CopyOut(runner.rank(r).staged());
    return status;
  });
  for (int32_t r = 0; r < 4; ++r) {
    EXPECT_EQ(first[r].code(), r == 1 ? StatusCode::kCancelled : StatusCode::kOk) << first[r];
    EXPECT_TRUE(rest[r].ok()) << rest[r];
    EXPECT_EQ(output[r].code(), StatusCode::kCancelled) << "rank " << r << " has no result";
  }
  EXPECT_TRUE(JobRunner(RingJob(4)).RunAndJudge(group, Reference));
}

TEST(Executor, AFailedKernelCostsOnlyItsOwnRank) {
  Group group = NewGroup(3);
  ASSERT_FALSE(group.empty());
  JobRunner runner(RingJob(3));
  ProbeKernel failing([] { return absl::ResourceExhaustedError("no memory"); });
  ReferenceKernel kernel;
  const auto options = [&](int32_t r) {
    return OptionsOf(r == 2 ? static_cast<AttentionKernel*>(&failing) : &kernel, group[r].get());
  };
  const auto statuses = RunBodies(runner, options, [&](int32_t r, Executor& executor) {
    RETURN_IF_ERROR(executor.Run({0, 3}, false));
    return executor.CopyOut(runner.rank(r).staged());
  });
  EXPECT_TRUE(statuses[0].ok()) << statuses[0];
  EXPECT_TRUE(statuses[1].ok()) << statuses[1];
  EXPECT_EQ(statuses[2].code(), StatusCode::kResourceExhausted) << statuses[2];
  EXPECT_EQ(runner.rank(2).executor()->CopyOut(runner.rank(2).staged()).code(),
            StatusCode::kResourceExhausted);
  EXPECT_TRUE(JobRunner(RingJob(3)).RunAndJudge(group, Reference));
}

TEST(Executor, ALostPeerEndsTheRun) {
  Faults faults;
  faults.fail_at_message = 3;
  Group faulty = ConnectedGroup(
      [&](int32_t size) {
        Group made = InProcessGroup(size, absl::ZeroDuration(), 0);
        made[0] = std::make_unique<FaultyCommunicator>(std::move(made[0]), faults);
        return made;
      },
      3);
  JobRunner runner(RingJob(3));
  ReferenceKernel kernel;
  const auto statuses = RunBodies(
      runner, [&](int32_t r) { return OptionsOf(&kernel, faulty[r].get()); },
      [&](int32_t, Executor& executor) {
        return executor.Run({0, 3}, false);
      });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
  }
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
  EXPECT_EQ(executor.Run({0, 2}, false).code(), StatusCode::kDeadlineExceeded);
}

// Whose queue can fail.
class ProbeDevice final : public Device {
 public:
  absl::StatusOr<DeviceMemory> Allocate(int64_t bytes) override { return host_->Allocate(bytes); }
  absl::Status CopyIn(const Copy2d& copy) override { return host_->CopyIn(copy); }
  absl::Status CopyOut(const Copy2d& copy) override { return host_->CopyOut(copy); }
  absl::Status Synchronize() override {
    ++waits;
    return status;
  }
  std::string Description() const override { return "probe"; }

  int waits = 0;
  absl::Status status;

 private:
  const std::unique_ptr<Device> host_ = MakeHostDevice();
};

TEST(Executor, WaitsForItsDeviceAtTheEndOfASegmentAndBeforeItGoes) {
  JobRunner runner(RingJob(1));
  ReferenceKernel kernel;
  ProbeDevice device;
  Executor::Options options = OptionsOf(&kernel, nullptr);
  options.device = &device;
  runner.rank(0).MakeExecutor(options);
  device.waits = 0;  // What the arena is filled with has been waited for.
  ASSERT_TRUE(runner.rank(0).executor()->CopyIn(runner.rank(0).staged()).ok());
  EXPECT_EQ(device.waits, 0);
  ASSERT_TRUE(runner.rank(0).executor()->Run({0, 1}, false).ok());
  EXPECT_EQ(device.waits, 1);
  runner.rank(0).MakeExecutor(OptionsOf(&kernel, nullptr));
  EXPECT_EQ(device.waits, 2);
}

TEST(Executor, CopiesGoPieceByPiece) {
  Copy2d copy;
  std::vector<std::byte> source(700), target(700);
  copy.source = source.data();
  copy.target = target.data();
  copy.source_stride = 10;
  copy.target_stride = 7;
  copy.width = 5;
  for (const auto& [rows, most, pieces] : {std::tuple<int64_t, int64_t, int>{0, 20, 0},
                                           {1, 20, 1},
                                           {4, 20, 1},
                                           {9, 20, 3},
                                           {3, 2, 3}}) {
    copy.rows = rows;
    int64_t done = 0;
    int seen = 0;
    const absl::Status status = ForEachPiece(copy, most, [&](const Copy2d& piece) {
      EXPECT_EQ(piece.source, copy.source + done * 10);
      EXPECT_EQ(piece.target, copy.target + done * 7);
      EXPECT_EQ(piece.width, 5);
      done += piece.rows;
      ++seen;
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok());
    EXPECT_EQ(done, rows);
    EXPECT_EQ(seen, pieces) << rows << " rows, " << most << " bytes";
  }
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
  EXPECT_EQ(executor.Run({0, 1}, false), device.status);
  EXPECT_FALSE(executor.communicator_failed());
  device.status = absl::OkStatus();
  EXPECT_EQ(executor.CopyOut(runner.rank(0).staged()).code(), StatusCode::kInternal);
  runner.rank(0).MakeExecutor(OptionsOf(&kernel, nullptr));  // Before the device goes.
}

TEST(Executor, SegmentsRunInOrder) {
  JobCase job = RingJob(1);
  job.parts = 4;
  JobRunner runner(job);
  ReferenceKernel kernel;
  runner.rank(0).MakeExecutor(OptionsOf(&kernel, nullptr));
  Executor& executor = *runner.rank(0).executor();
  ASSERT_TRUE(executor.CopyIn(runner.rank(0).staged()).ok());
  const int32_t steps = static_cast<int32_t>(runner.rank(0).program().schedule.steps.size());
  ASSERT_GE(steps, 4);
  EXPECT_EQ(executor.Run({1, 2}, false).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(executor.Run({0, steps + 1}, false).code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(executor.Run({0, 1}, false).ok());
  EXPECT_EQ(executor.Run({0, 1}, false).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(executor.CopyOut(runner.rank(0).staged()).code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(executor.Run({1, steps}, false).ok());
  EXPECT_EQ(executor.step(), steps - 1);
  EXPECT_TRUE(executor.CopyOut(runner.rank(0).staged()).ok());
}

// A job of fewer ranks than its group has: the surplus takes no part.
TEST(Executor, AGroupMayBeLargerThanTheJob) {
  Group group = NewGroup(4);
  ASSERT_FALSE(group.empty());
  EXPECT_TRUE(JobRunner(RingJob(3)).RunAndJudge(group, Reference));
  EXPECT_TRUE(JobRunner(RingJob(4)).RunAndJudge(group, Reference));
}

TEST(Executor, CountsWhatItDid) {
  Group group = NewGroup(2);
  ASSERT_FALSE(group.empty());
  JobRunner runner(RingJob(2));
  ASSERT_TRUE(runner.RunAndJudge(group, Reference));
  const ExecutionStats& stats = runner.rank(0).executor()->stats();
  // Its 20 rows of 2 heads × (8 + 12) fp32 numbers.
  EXPECT_EQ(stats.bytes_sent, 20 * 2 * 20 * 4);
  EXPECT_EQ(stats.tasks, 2);
  EXPECT_GT(stats.running, absl::ZeroDuration());
  EXPECT_LE(stats.exposed_communication, stats.running);
}

TEST(Executor, StagingThatDoesNotFitIsRefused) {
  JobRunner runner(RingJob(1));
  ReferenceKernel kernel;
  runner.rank(0).MakeExecutor(OptionsOf(&kernel, nullptr));
  StagedTensors staged = runner.rank(0).staged();
  staged.data[1] = nullptr;
  EXPECT_EQ(runner.rank(0).executor()->CopyIn(staged).code(), StatusCode::kInvalidArgument);
  staged.data.pop_back();
  EXPECT_EQ(runner.rank(0).executor()->CopyIn(staged).code(), StatusCode::kInvalidArgument);
}

TEST(Program, WrongRequestsAreRefused) {
  ProgramRequest request;
  request.spec = SmallSpec(DataType::kFp32, 10, 10);
  request.plan_options.world_size = 2;
  request.execution.strategy = Strategy::kRingPassKv;
  request.rank = 2;
  EXPECT_EQ(MakeProgram(request).status().code(), StatusCode::kInvalidArgument);
  request.rank = 0;
  ASSERT_TRUE(MakeProgram(request).ok());
  request.parts_of_step = {1};
  EXPECT_EQ(MakeProgram(request).status().code(), StatusCode::kInvalidArgument);
  request.parts_of_step = {1, 0};
  EXPECT_EQ(MakeProgram(request).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace annulus

// The executor's segments, cancellation and preparation. Failures: executor_failures_test.cc.

#include "worker/executor/executor.h"

#include <atomic>
#include <functional>
#include <memory>
#include <tuple>
#include <vector>

#include "base/status_macros.h"
#include "tests/worker/comm/forwarding_communicator.h"
#include "tests/worker/executor/executor_harness.h"

namespace annulus {
namespace {

using absl::StatusCode;

// Rank 1 is stopped in the middle of a segment. It continues without computing, and the other ranks
// finish. Then the group runs another job.
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
    first[r] = executor.Run({0, 3});
    const absl::Status status = executor.Run({3, 4});
    output[r] = executor.CopyOut(runner.rank(r).staged());
    return status;
  });
  for (int32_t r = 0; r < 4; ++r) {
    const StatusCode code = r == 1 ? StatusCode::kCancelled : StatusCode::kOk;
    EXPECT_EQ(first[r].code(), code) << first[r];
    EXPECT_EQ(rest[r].code(), code) << rest[r];
    EXPECT_EQ(output[r].code(), code) << output[r];
    EXPECT_FALSE(runner.rank(r).executor()->peer_failed());
  }
  EXPECT_TRUE(JobRunner(RingJob(4)).RunAndJudge(group, Reference));
}

// A kernel that has to prepare before messages are in transit.
class PreparingKernel final : public AttentionKernel {
 public:
  explicit PreparingKernel(std::function<absl::Status()> prepare) : prepare_(std::move(prepare)) {}
  bool prepares() const override { return true; }
  absl::Status Prepare(const KernelJob&, absl::Span<const KernelTask> tasks,
                       const KernelControl&) override {
    prepared_ += tasks.size();
    return prepare_();
  }
  absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                          const KernelControl& control) override {
    accumulated_ += tasks.size();
    EXPECT_LE(accumulated_, prepared_);
    return inner_.Accumulate(job, tasks, control);
  }
  absl::Status Apply(const KernelJob& job, const KernelOp& op) override {
    return inner_.Apply(job, op);
  }
  std::string Description() const override { return "preparing"; }
  size_t prepared() const { return prepared_; }
  size_t accumulated() const { return accumulated_; }

 private:
  const std::function<absl::Status()> prepare_;
  size_t prepared_ = 0, accumulated_ = 0;
  ReferenceKernel inner_;
};

// Records when a step's messages start.
class Watched final : public ForwardingCommunicator {
 public:
  Watched(Communicator* inner, std::function<void()> starts)
      : inner_(inner), starts_(std::move(starts)) {}
  absl::Status Start(absl::Span<const SendMessage> sends,
                     absl::Span<const ReceiveMessage> receives) override {
    starts_();
    return ForwardingCommunicator::Start(sends, receives);
  }

 private:
  Communicator& inner() const override { return *inner_; }

  Communicator* const inner_;
  const std::function<void()> starts_;
};

TEST(Executor, PreparesASegmentBeforeItsMessages) {
  Group group = NewGroup(3);
  ASSERT_FALSE(group.empty());
  JobRunner runner(RingJob(3));
  std::vector<int> calls(3);  // Calls of Prepare, by rank.
  std::vector<std::unique_ptr<PreparingKernel>> kernels;
  std::vector<std::unique_ptr<Watched>> watched;
  for (int32_t r = 0; r < 3; ++r) {
    kernels.push_back(std::make_unique<PreparingKernel>([&calls, r] {
      ++calls[r];
      return absl::OkStatus();
    }));
    watched.push_back(std::make_unique<Watched>(group[r].get(), [&calls, &runner, r] {
      EXPECT_EQ(calls[r], runner.rank(r).executor()->step() < 2 ? 1 : 2);
    }));
  }
  const auto options = [&](int32_t r) { return OptionsOf(kernels[r].get(), watched[r].get()); };
  const auto statuses = RunBodies(runner, options, [&](int32_t r, Executor& executor) {
    RETURN_IF_ERROR(executor.Run({0, 2}));
    RETURN_IF_ERROR(executor.Run({2, 3}));
    return executor.CopyOut(runner.rank(r).staged());
  });
  for (int32_t r = 0; r < 3; ++r) {
    EXPECT_TRUE(statuses[r].ok()) << statuses[r];
    EXPECT_EQ(calls[r], 2);
    EXPECT_GT(kernels[r]->accumulated(), 0u);
    EXPECT_EQ(kernels[r]->prepared(), kernels[r]->accumulated());
  }
}

TEST(Executor, OperationsAreCountedAndMayBeStopped) {
  for (const bool stopped : {false, true}) {
    JobRunner runner(RingJob(1));
    std::atomic<bool> stop{stopped};
    std::atomic<int64_t> progress{0};
    int64_t before_tasks = 0;
    ProbeKernel kernel([&] {
      before_tasks = progress;
      return absl::OkStatus();
    });
    Executor::Options options = OptionsOf(&kernel, nullptr);
    options.control = {&stop, &progress};
    runner.rank(0).MakeExecutor(options);
    const absl::Status ran = runner.rank(0).executor()->Run({0, 1});
    EXPECT_EQ(ran.code(), stopped ? StatusCode::kCancelled : StatusCode::kOk) << ran;
    EXPECT_EQ(kernel.applied, stopped ? 0 : 2) << "a state begins and ends";
    EXPECT_EQ(before_tasks, stopped ? 0 : 1);
  }
}

TEST(Executor, APreparationThatFailsCostsOnlyItsOwnRank) {
  Group group = NewGroup(2);
  ASSERT_FALSE(group.empty());
  JobRunner runner(RingJob(2));
  PreparingKernel failing([] { return absl::ResourceExhaustedError("no memory"); });
  ReferenceKernel kernel;
  const auto options = [&](int32_t r) {
    return OptionsOf(r == 1 ? static_cast<AttentionKernel*>(&failing) : &kernel, group[r].get());
  };
  const auto statuses = RunBodies(runner, options, [&](int32_t, Executor& executor) {
    return executor.Run({0, 2});
  });
  EXPECT_TRUE(statuses[0].ok()) << statuses[0];
  EXPECT_EQ(statuses[1].code(), StatusCode::kResourceExhausted) << statuses[1];
  EXPECT_EQ(failing.accumulated(), 0u);
}

TEST(Executor, WaitsForItsDeviceAtTheEndOfASegmentAndBeforeItGoes) {
  JobRunner runner(RingJob(1));
  ReferenceKernel kernel;
  ProbeDevice device;
  Executor::Options options = OptionsOf(&kernel, nullptr);
  options.device = &device;
  runner.rank(0).MakeExecutor(options);
  device.waits = 0;  // Filling the arena has been waited for.
  ASSERT_TRUE(runner.rank(0).executor()->CopyIn(runner.rank(0).staged()).ok());
  EXPECT_EQ(device.waits, 0);
  ASSERT_TRUE(runner.rank(0).executor()->Run({0, 1}).ok());
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
  EXPECT_EQ(executor.Run({1, 2}).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(executor.Run({0, steps + 1}).code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(executor.Run({0, 1}).ok());
  EXPECT_EQ(executor.Run({0, 1}).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(executor.CopyOut(runner.rank(0).staged()).code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(executor.Run({1, steps}).ok());
  EXPECT_EQ(executor.step(), steps - 1);
  EXPECT_TRUE(executor.CopyOut(runner.rank(0).staged()).ok());
}

// A job with fewer ranks than its group: the surplus ranks take no part.
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
  std::atomic<int> calls{0};
  ASSERT_TRUE(runner.RunAndJudge(group, [&] {
    return std::make_unique<ProbeKernel>([&] {
      ++calls;
      return absl::OkStatus();
    });
  }));
  EXPECT_EQ(calls, 2 * 2) << "a step's tasks on each rank";
  const ExecutionStats& stats = runner.rank(0).executor()->stats();
  // Its 20 rows of 2 heads × (8 + 12) fp32 numbers.
  EXPECT_EQ(stats.bytes_sent, 20 * 2 * 20 * 4);
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
  request.parts_of_step = {};
  request.spec.deterministic = true;
  EXPECT_EQ(MakeProgram(request).status().code(), StatusCode::kInvalidArgument);
  request.plan_options.granule = 2 * kFoldTile;
  EXPECT_TRUE(MakeProgram(request).ok());
}

}  // namespace
}  // namespace annulus

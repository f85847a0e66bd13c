#include "worker/backend/measure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "worker/comm/communicator.h"
#include "worker/device/host.h"
#include "worker/kernel/cpu/cpu_kernel.h"

namespace annulus {
namespace {

// A clock that advances only while rank 0 works.
struct Clock {
  absl::Time now = absl::UnixEpoch();
};

struct Link {
  double bytes_per_second = 0;
  absl::Duration connect, first_message;  // first_message: in addition to its bytes.
  // Time of every other message, in addition to its own.
  absl::Duration wait_of_every_other = absl::ZeroDuration();
};

// One of two ranks that exchange nothing and take the time of a link.
class SlowCommunicator final : public Communicator {
 public:
  SlowCommunicator(int32_t rank, const Link& link, Clock* clock)
      : rank_(rank), link_(link), clock_(clock) {}

  absl::StatusOr<std::string> Bootstrap() override { return std::string("here"); }
  absl::Status Connect(absl::Span<const std::string>, absl::Time) override {
    Pass(link_.connect);
    return absl::OkStatus();
  }
  absl::Status Start(absl::Span<const SendMessage> sends,
                     absl::Span<const ReceiveMessage>) override {
    bytes_ = sends[0].bytes;
    return absl::OkStatus();
  }
  absl::Status Join(absl::Time) override {
    if (joins_++ == 0) Pass(link_.first_message);
    Pass(absl::Seconds(static_cast<double>(bytes_) / link_.bytes_per_second));
    if (joins_ % 2 == 0) Pass(link_.wait_of_every_other);
    return absl::OkStatus();
  }
  void Abort() override {}
  int32_t rank() const override { return rank_; }
  int32_t size() const override { return 2; }
  int64_t bytes_received() const override { return 0; }

 private:
  void Pass(absl::Duration time) {
    if (rank_ == 0) clock_->now += time;
  }

  const int32_t rank_;
  const Link link_;
  Clock* const clock_;
  int64_t bytes_ = 0;
  int joins_ = 0;
};

Engine EngineOf(const Link& link, Clock* clock) {
  Engine engine;
  engine.make_device = []() -> absl::StatusOr<std::unique_ptr<Device>> { return MakeHostDevice(); };
  engine.make_communicator = [link, clock](
                                 Device*, int32_t rank,
                                 int32_t) -> absl::StatusOr<std::unique_ptr<Communicator>> {
    return std::make_unique<SlowCommunicator>(rank, link, clock);
  };
  return engine;
}

ColdNumbers* Cold() {
  static auto* const cold = new ColdNumbers(*ColdNumbers::Create());
  return cold;
}

KernelRates Of(DataType dtype, Operation operation = Operation::kForward) {
  KernelRates of;
  of.dtype = dtype;
  of.operation = operation;
  return of;
}

double Measured(const Link& link, absl::Duration budget) {
  Clock clock;
  const Engine engine = EngineOf(link, &clock);
  const auto rate = MeasureLink(engine, budget, [&] { return clock.now; });
  return rate.ok() ? *rate : -1;
}

TEST(MeasureTest, TheRateOfALinkIsThatOfItsMessages) {
  const absl::Duration budget = absl::Milliseconds(50);
  for (const double rate : {1e6, 1e8, 1e9, 2e10}) {
    for (const absl::Duration cost :
         {absl::ZeroDuration(), absl::Milliseconds(5), absl::Seconds(3)}) {
      EXPECT_NEAR(Measured({rate, cost, cost}, budget), rate, rate * 1e-3) << cost;
    }
  }
}

TEST(MeasureTest, ARateExplainsLongRowsWindowsAndFewRows) {
  const KernelRate of{64, 3e-10, 2e-7, 9e-8};
  const auto run = [&](int64_t pairs, int64_t rows, int64_t keys) {
    const KernelWork work{static_cast<double>(pairs), static_cast<double>(rows),
                          static_cast<double>(keys)};
    return TimedRun{pairs, rows, SecondsOf(work, of), 0, keys};
  };
  const auto square = [&](int64_t length, int64_t sees) {
    return run(4 * length * sees, 4 * length, 4 * length);
  };
  const TimedRun none, full = square(2048, 2048), windows = square(4096, 250);
  const TimedRun shorter = square(1024, 1024), few_rows = run(8 * 8192, 0, 8 * 8192);
  KernelRate rate = RateOfRuns(64, full, shorter, windows, few_rows);
  EXPECT_EQ(rate.head_dim, 64);
  EXPECT_NEAR(rate.pair_seconds, of.pair_seconds, 1e-15);
  EXPECT_NEAR(rate.row_seconds, of.row_seconds, 1e-12);
  EXPECT_NEAR(rate.key_seconds, of.key_seconds, 1e-12);
  // Without a shorter run, windows separate pairs from rows with as many keys.
  rate = RateOfRuns(64, full, none, windows, few_rows);
  EXPECT_NEAR(rate.pair_seconds, of.pair_seconds, 1e-15);
  EXPECT_NEAR(rate.row_seconds, of.row_seconds, 1e-12);
  // Tiles that are partly visible in windows make rows expensive, not pairs cheap.
  TimedRun dear = windows;
  dear.seconds *= 2;
  rate = RateOfRuns(64, full, shorter, dear, few_rows);
  EXPECT_NEAR(rate.pair_seconds, of.pair_seconds, 1e-15);
  EXPECT_GT(rate.row_seconds, 1.5 * of.row_seconds);
  EXPECT_NEAR(rate.key_seconds, of.key_seconds, 1e-12);
  // Windows were disturbed: `full` must not count as rows only.
  rate = RateOfRuns(64, {1 << 20, 1 << 12, 1e-3}, none, {1 << 16, 1 << 12, 5e-3}, none);
  EXPECT_NEAR(rate.pair_seconds, 5e-4 / (1 << 20), 1e-15);
  EXPECT_EQ(rate.key_seconds, 0);
  // Full attention was disturbed.
  rate = RateOfRuns(64, {1 << 20, 1 << 12, 1.0}, none, {1 << 16, 1 << 12, 1e-3}, none);
  EXPECT_NEAR(rate.pair_seconds, 1.0 / (1 << 20), 1e-15);
  EXPECT_EQ(rate.row_seconds, 0);
}

TEST(MeasureTest, ColdNumbersComeAgainWhenAllOthersHaveCome) {
  auto cold = ColdNumbers::Create();
  ASSERT_TRUE(cold.ok()) << cold.status();
  constexpr int64_t kBytes = ColdNumbers::kBytes / 3;
  std::byte* const first = cold->Take(kBytes);
  EXPECT_EQ(cold->Take(kBytes), first + kBytes);
  EXPECT_EQ(cold->Take(kBytes), first + 2 * kBytes);
  EXPECT_EQ(cold->Take(kBytes), first) << "the rest is too little";
  EXPECT_EQ(cold->Take(ColdNumbers::kBytes), first);
}

TEST(MeasureTest, TheShareOfProcessorsIsThatOfAllThreadsInAllRuns) {
  TimedRun run;
  run.seconds = 2;
  run.cpu_seconds = 1;
  EXPECT_EQ(CpuShareOf({run}, 4), 0.125);
  TimedRun busy;
  busy.seconds = 1;
  busy.cpu_seconds = 5;
  EXPECT_EQ(CpuShareOf({run, busy}, 4), 0.5);
  EXPECT_EQ(CpuShareOf({busy}, 4), 1) << "clocks differ by their ticks";
  EXPECT_EQ(CpuShareOf({run}, 0), 1) << "a GPU computes";
  EXPECT_EQ(CpuShareOf({}, 4), 1);
}

TEST(MeasureTest, AKernelIsMeasuredWithTheTimeOfItsProcessors) {
  Engine engine;
  engine.make_device = []() -> absl::StatusOr<std::unique_ptr<Device>> { return MakeHostDevice(); };
  engine.make_kernel = [](Device*) -> absl::StatusOr<std::unique_ptr<AttentionKernel>> {
    CpuKernel::Options options;
    options.threads = 1;
    return CpuKernel::Create(options);
  };
  const auto share = [&](int threads) {
    const auto measured =
        MeasureKernel(engine, Of(DataType::kFp32), threads, absl::Milliseconds(1), Cold());
    EXPECT_TRUE(measured.ok()) << measured.status();
    EXPECT_EQ(measured->rates.size(), 4u);
    EXPECT_EQ(measured->rates.front().head_dim, 32);
    return measured->cpu_share;
  };
  EXPECT_GT(std::max({share(1), share(1), share(1)}), 0.01);
  EXPECT_LT(share(1 << 20), 0.01) << "one thread computes";
  EXPECT_EQ(share(0), 1);
}

// Making a kernel may take a GPU's worker longer than a run.
TEST(MeasureTest, OneKernelOnOneDeviceIsMeasured) {
  int devices = 0, kernels = 0;
  Engine engine;
  engine.make_device = [&]() -> absl::StatusOr<std::unique_ptr<Device>> {
    ++devices;
    return MakeHostDevice();
  };
  engine.make_kernel = [&](Device*) -> absl::StatusOr<std::unique_ptr<AttentionKernel>> {
    ++kernels;
    return CpuKernel::Create({});
  };
  ASSERT_TRUE(MeasureKernel(engine, Of(DataType::kFp32), 1, absl::Milliseconds(20), Cold()).ok());
  EXPECT_EQ(devices, 1);
  EXPECT_EQ(kernels, 1);
}

// Records the calls of a job's kernel. Rows begin and end in its tasks as usual.
class Recording final : public AttentionKernel {
 public:
  struct Calls {
    int begun = 0, ended = 0, ops = 0, tasks = 0, gradients = 0;
  };
  Recording(bool ends_rows, Calls* calls) : ends_rows_(ends_rows), calls_(calls) {}
  absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                          const KernelControl& control) override {
    for (const KernelTask& bound : tasks) {
      ++calls_->tasks;
      calls_->gradients += bound.q.block.kind == BlockKind::kQGrad ? 1 : 0;
      calls_->begun += bound.task.begins.length() > 0 ? 1 : 0;
      calls_->ended += bound.task.ends.length() > 0 ? 1 : 0;
    }
    return kernel_->Accumulate(job, tasks, control);
  }
  absl::Status Apply(const KernelJob& job, const KernelOp& op) override {
    ++calls_->ops;
    return kernel_->Apply(job, op);
  }
  bool ends_rows() const override { return ends_rows_; }
  std::string Description() const override { return "recording"; }

 private:
  const std::unique_ptr<AttentionKernel> kernel_ = *CpuKernel::Create({});
  const bool ends_rows_;
  Calls* const calls_;
};

TEST(MeasureTest, AKernelIsMeasuredAsJobsRunIt) {
  for (const bool ends_rows : {true, false}) {
    Recording::Calls calls;
    Engine engine;
    engine.make_device = []() -> absl::StatusOr<std::unique_ptr<Device>> {
      return MakeHostDevice();
    };
    engine.make_kernel = [&](Device*) -> absl::StatusOr<std::unique_ptr<AttentionKernel>> {
      return std::make_unique<Recording>(ends_rows, &calls);
    };
    ASSERT_TRUE(MeasureKernel(engine, Of(DataType::kBf16), 1, absl::Milliseconds(1), Cold()).ok());
    EXPECT_EQ(calls.gradients, 0);
    EXPECT_GT(calls.tasks, 0);
    EXPECT_EQ(calls.begun, ends_rows ? calls.tasks : 0);
    EXPECT_EQ(calls.ended, calls.begun);
    EXPECT_EQ(calls.ops, ends_rows ? 0 : 2 * calls.tasks) << "the identity and the finish";
  }
}

TEST(MeasureTest, GradientsAreMeasuredByGradients) {
  for (const DataType dtype : {DataType::kFp32, DataType::kBf16, DataType::kFp16}) {
    Recording::Calls calls;
    Engine engine;
    engine.make_device = []() -> absl::StatusOr<std::unique_ptr<Device>> {
      return MakeHostDevice();
    };
    engine.make_kernel = [&](Device*) -> absl::StatusOr<std::unique_ptr<AttentionKernel>> {
      return std::make_unique<Recording>(/*ends_rows=*/true, &calls);
    };
    const auto measured =
        MeasureKernel(engine, Of(dtype, Operation::kGradients), 1, absl::Milliseconds(1), Cold());
    ASSERT_TRUE(measured.ok()) << measured.status();
    EXPECT_GT(calls.tasks, 0);
    EXPECT_EQ(calls.gradients, calls.tasks);
    ASSERT_EQ(measured->rates.size(), 4u);
    for (const KernelRate& rate : measured->rates) EXPECT_GT(rate.pair_seconds, 0);
  }
}

// Imitates other workers that measure on the same CPUs.
TEST(MeasureTest, AStepIsAMessageThatWaitsForNoCpu) {
  Clock clock;
  Link link{1024 / 150e-6, absl::ZeroDuration(), absl::ZeroDuration()};
  link.wait_of_every_other = absl::Milliseconds(4);
  const auto seconds =
      MeasureStep(EngineOf(link, &clock), absl::ZeroDuration(), [&] { return clock.now; });
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  EXPECT_NEAR(*seconds, 150e-6, 1e-6);
}

}  // namespace
}  // namespace annulus

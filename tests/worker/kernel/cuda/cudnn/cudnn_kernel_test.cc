// Tests of the kernel that passes rectangles to cuDNN, in addition to the conformance suites.

#include "worker/kernel/cuda/cudnn/cudnn_kernel.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/data_plane/copy_probe.h"
#include "tests/worker/kernel/cuda/cudnn/emulated_cudnn.h"
#include "tests/worker/kernel/cuda/emulator/emulated_launcher.h"
#include "tests/worker/kernel/kernel_conformance.h"
#include "worker/backend/self_check.h"
#include "worker/kernel/cpu/cpu_kernel.h"
#include "worker/kernel/cpu/isa/isa_dispatch.h"

namespace annulus::cuda {
namespace {

using testing::HasSubstr;

AttentionSpec CausalSpec(DataType dtype = DataType::kBf16) {
  AttentionSpec spec = Spec(dtype, 4, 2, 24);
  spec.sequences = {Rows(90, 150)};
  spec.masks = {Causal()};
  return spec;
}

struct Made {
  std::shared_ptr<CudnnStandIn> cudnn = std::make_shared<CudnnStandIn>();
  std::unique_ptr<AttentionKernel> kernel;
};
Made Make(const CudnnRule& rule = SmallCudnnRule()) {
  Made made;
  made.kernel = MakeEmulatedCudnnKernel(made.cudnn, rule);
  return made;
}

TEST(CudnnKernel, DoesTheRectanglesOfACausalMask) {
  for (const DataType dtype : {DataType::kFp16, DataType::kBf16}) {
    const Made made = Make();
    const AttentionSpec spec = CausalSpec(dtype);
    EXPECT_TRUE(WithinBudget(*made.kernel, spec, Normal(spec, 3), {}));
    EXPECT_GT(made.cudnn->runs(), 3);
  }
}

TEST(CudnnKernel, WhatIsNotItsIsTheOthersBitForBit) {
  const auto alone = MakeEmulatedKernel(32 << 10);
  std::vector<AttentionSpec> specs(6, CausalSpec());
  specs[0].dtype = DataType::kFp32;
  specs[1].deterministic = true;
  specs[2].modifiers.soft_cap = 3;
  specs[3].dropout = Dropout{0.25, 7};
  specs[4].scale = -0.1;
  specs[5].head_dim = 20;
  for (const AttentionSpec& spec : specs) {
    const Made made = Make();
    KernelHarness ours(spec, Normal(spec, 5), {}), theirs(spec, Normal(spec, 5), {});
    ASSERT_TRUE(ours.Run(*made.kernel).ok());
    ASSERT_TRUE(theirs.Run(*alone).ok());
    EXPECT_EQ(ours.state(), theirs.state()) << Describe(spec, {});
    EXPECT_EQ(made.cudnn->runs(), 0);
  }
}

TEST(CudnnKernel, SmallRectanglesAreTheOthers) {
  CudnnRule rule = SmallCudnnRule();
  rule.least_keys = 151;
  const Made made = Make(rule);
  const AttentionSpec spec = CausalSpec();
  EXPECT_TRUE(WithinBudget(*made.kernel, spec, Normal(spec, 3), {}));
  EXPECT_EQ(made.cudnn->runs(), 0);
}

TEST(CudnnKernel, PlansAreKept) {
  const Made made = Make();
  const AttentionSpec spec = CausalSpec();
  KernelHarness harness(spec, Normal(spec, 3), {});
  ASSERT_TRUE(harness.Run(*made.kernel).ok());
  const int64_t plans = made.cudnn->plans_made(), runs = made.cudnn->runs();
  ASSERT_TRUE(harness.Run(*made.kernel).ok());
  EXPECT_EQ(made.cudnn->plans_made(), plans);
  EXPECT_EQ(made.cudnn->runs(), 2 * runs);
}

TEST(CudnnKernel, NoMorePlansAreKeptThanThereMayBe) {
  constexpr int64_t kMost = 12;
  Made made;
  made.kernel = MakeEmulatedCudnnKernel(made.cudnn, SmallCudnnRule(), {kMost});
  int64_t most = 0;
  for (int64_t keys = 1; keys <= kMost + 5; ++keys) {
    AttentionSpec spec = Spec(DataType::kBf16, 1, 1, 8);
    spec.sequences = {Rows(1, keys)};
    KernelHarness harness(spec, Normal(spec, 3), {});
    ASSERT_TRUE(harness.Run(*made.kernel).ok());
    most = std::max(most, made.cudnn->alive());
  }
  EXPECT_EQ(made.cudnn->plans_made(), kMost + 5 + 2);
  // Descriptors of a plan: twelve tensors, eight operations with a description each, the graph, the
  // heuristics, the engine and the plan.
  EXPECT_LE(most, (kMost + 3) * 32);
  EXPECT_GT(most, kMost * 32);
}

// 32, 32 and 26 rows of 150 keys.
AttentionSpec TwoShapes() {
  AttentionSpec spec = CausalSpec();
  spec.masks.clear();
  return spec;
}

TEST(CudnnKernel, RectanglesOfOneShapeHaveOnePlan) {
  int64_t waits = 0;
  EmulatedCudnnOptions more;
  more.most_plans = 2;
  more.waits = [&] { ++waits; };
  Made made;
  made.kernel = MakeEmulatedCudnnKernel(made.cudnn, SmallCudnnRule(), more);
  const AttentionSpec spec = TwoShapes();
  KernelHarness harness(spec, Normal(spec, 3), {});
  for (int run = 1; run <= 2; ++run) {
    ASSERT_TRUE(harness.Run(*made.kernel).ok());
    EXPECT_EQ(made.cudnn->runs(), 3 * run);
    EXPECT_EQ(made.cudnn->plans_made(), 2 + 2);
    EXPECT_EQ(waits, 0);
  }
}

TEST(CudnnKernel, ShapesOfACallForWhichThereIsNoRoomAreTheOthers) {
  Made made;
  made.kernel = MakeEmulatedCudnnKernel(made.cudnn, SmallCudnnRule(), {1});
  const AttentionSpec spec = TwoShapes();
  for (int run = 1; run <= 2; ++run) {
    EXPECT_TRUE(WithinBudget(*made.kernel, spec, Normal(spec, 3), {}));
    EXPECT_EQ(made.cudnn->runs(), 2 * run) << "those of 32 rows, in every call";
    EXPECT_LE(made.cudnn->alive(), (1 + 3) * 32);
  }
}

// Making a plan may load code, which may wait for messages that wait for other ranks.
TEST(CudnnKernel, MakesNoPlanWhileMessagesAreUnderWay) {
  LoadGate gate;
  EmulatedCudnnOptions more;
  more.gate = &gate;
  Made made;
  made.kernel = MakeEmulatedCudnnKernel(made.cudnn, SmallCudnnRule(), more);
  const AttentionSpec spec = TwoShapes();
  const int64_t at_start = made.cudnn->plans_made();
  gate.BeginMessages();
  EXPECT_TRUE(WithinBudget(*made.kernel, spec, Normal(spec, 3), {}));
  EXPECT_EQ(made.cudnn->plans_made(), at_start);
  EXPECT_EQ(made.cudnn->runs(), 0) << "the other kernel's";
  gate.EndMessages();
  KernelHarness harness(spec, Normal(spec, 3), {});
  ASSERT_TRUE(made.kernel->prepares());
  ASSERT_TRUE(made.kernel->Prepare(harness.job(), harness.Tasks(), {}).ok());
  EXPECT_EQ(made.cudnn->plans_made(), at_start + 2);
  gate.BeginMessages();
  EXPECT_TRUE(WithinBudget(*made.kernel, spec, Normal(spec, 3), {}));
  EXPECT_EQ(made.cudnn->plans_made(), at_start + 2);
  EXPECT_EQ(made.cudnn->runs(), 3) << "what was prepared";
  gate.EndMessages();
}

TEST(CudnnKernel, APreparationWaitsForMessagesAndStopsWhenItIsToldTo) {
  LoadGate gate;
  EmulatedCudnnOptions more;
  more.gate = &gate;
  Made made;
  made.kernel = MakeEmulatedCudnnKernel(made.cudnn, SmallCudnnRule(), more);
  const AttentionSpec spec = TwoShapes();
  KernelHarness harness(spec, Normal(spec, 3), {});
  std::atomic<bool> stop = false;
  std::atomic<int64_t> progress = 0;
  KernelControl control;
  control.stop = &stop;
  control.progress = &progress;
  for (const bool stopping : {true, false}) {
    gate.BeginMessages();
    const int64_t before = progress;
    absl::Status prepared;
    std::atomic<bool> done = false;
    std::thread waiting([&] {
      prepared = made.kernel->Prepare(harness.job(), harness.Tasks(), control);
      done = true;
    });
    while (progress < before + 2 && !done) std::this_thread::yield();
    EXPECT_EQ(made.cudnn->plans_made(), 2);
    if (stopping)
      stop = true;
    else
      gate.EndMessages();
    waiting.join();
    EXPECT_EQ(prepared.code(), stopping ? absl::StatusCode::kCancelled : absl::StatusCode::kOk);
    if (stopping) gate.EndMessages();
    stop = false;
  }
  EXPECT_EQ(made.cudnn->plans_made(), 2 + 2);
}

TEST(CudnnKernel, NothingIsLeft) {
  Made made = Make();
  const AttentionSpec spec = CausalSpec();
  EXPECT_TRUE(WithinBudget(*made.kernel, spec, Normal(spec, 3), {}));
  EXPECT_GT(made.cudnn->alive(), 0);
  made.kernel = nullptr;
  EXPECT_EQ(made.cudnn->alive(), 0);
}

TEST(CudnnKernel, ShapesThatItRefusesAreTheOthers) {
  for (const bool workspace : {false, true}) {
    const Made made = Make();
    if (workspace)
      made.cudnn->set_workspace_bytes(CudnnKernel::kWorkspaceBytes + 1);
    else
      made.cudnn->set_serves([](int64_t, int64_t) { return false; });
    const AttentionSpec spec = CausalSpec();
    EXPECT_TRUE(WithinBudget(*made.kernel, spec, Normal(spec, 3), {}));
    const int64_t plans = made.cudnn->plans_made();
    EXPECT_TRUE(WithinBudget(*made.kernel, spec, Normal(spec, 3), {}));
    EXPECT_EQ(made.cudnn->plans_made(), plans) << "what was refused is not asked again";
    EXPECT_EQ(made.cudnn->runs(), 0);
  }
}

TEST(CudnnKernel, AFailureIsToldInItsWords) {
  const Made made = Make();
  made.cudnn->Break();
  const AttentionSpec spec = CausalSpec();
  KernelHarness harness(spec, Normal(spec, 3), {});
  const absl::Status status = harness.Run(*made.kernel);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("broken"));
}

TEST(CudnnKernel, AFaultOfTheDeviceThatItMeetsFirstIsToldAsOne) {
  const absl::Status fault = MakeError(absl::StatusCode::kInternal, "an illegal address",
                                       {std::string(kReasonDeviceFault), {}, {}, {}});
  EmulatedCudnnOptions more;
  more.fault = &fault;
  for (const bool at_queue : {false, true}) {
    Made made;
    made.kernel = MakeEmulatedCudnnKernel(made.cudnn, SmallCudnnRule(), more);
    at_queue ? made.cudnn->RefuseStreams() : made.cudnn->Break();
    const AttentionSpec spec = TwoShapes();
    KernelHarness harness(spec, Normal(spec, 3), {});
    EXPECT_TRUE(IsDeviceFault(harness.Run(*made.kernel)));
  }
}

TEST(CudnnKernel, StopsBetweenRectangles) {
  const Made made = Make();
  AttentionSpec spec = CausalSpec();
  spec.masks.clear();  // All of it goes to cuDNN.
  KernelHarness harness(spec, Normal(spec, 3), {});
  const std::atomic<bool> stop = true;
  KernelControl control;
  control.stop = &stop;
  EXPECT_EQ(harness.Run(*made.kernel, control).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(made.cudnn->runs(), 0);
}

// Queued work never takes longer than the watchdog waits for progress.
TEST(CudnnKernel, WaitsForTheDeviceBeforeItQueuesMoreThanTheRuleSays) {
  AttentionSpec spec = CausalSpec();
  spec.masks.clear();
  CudnnRule rule = SmallCudnnRule();
  // Rectangles of 32, 32 and 26 rows.
  const double work_of_row = 150.0 * 4 * (24 + 24), two = 58 * work_of_row, all = 90 * work_of_row;
  for (const auto& [most, waits] : {std::pair<double, size_t>(1, 2),
                                    {two - 1, 2},
                                    {two, 1},
                                    {all - 1, 1},
                                    {all, 0},
                                    {CudnnRule().most_queued, 0}}) {
    rule.most_queued = most;
    std::atomic<bool> stop = false;
    std::atomic<int64_t> progress = 0;
    std::vector<int64_t> seen;
    EmulatedCudnnOptions more;
    more.waits = [&] { seen.push_back(progress); };
    const CudnnKernel* inside = nullptr;
    more.made = &inside;
    Made made;
    made.kernel = MakeEmulatedCudnnKernel(made.cudnn, rule, more);
    KernelControl control;
    control.stop = &stop;
    control.progress = &progress;
    KernelHarness harness(spec, Normal(spec, 3), {});
    ASSERT_TRUE(harness.Run(*made.kernel, control).ok());
    EXPECT_EQ(made.cudnn->runs(), 3);
    EXPECT_EQ(inside->rectangles(), made.cudnn->runs());
    EXPECT_EQ(seen.size(), waits) << most;
    EXPECT_TRUE(std::adjacent_find(seen.begin(), seen.end(), std::greater_equal<>()) == seen.end())
        << "progress between waits";
  }
}

TEST(CudnnKernel, StopsWhenItWasToldToWhileItWaited) {
  AttentionSpec spec = CausalSpec();
  spec.masks.clear();
  CudnnRule rule = SmallCudnnRule();
  rule.most_queued = 1;
  std::atomic<bool> stop = false;
  EmulatedCudnnOptions more;
  more.waits = [&] { stop = true; };
  Made made;
  made.kernel = MakeEmulatedCudnnKernel(made.cudnn, rule, more);
  KernelControl control;
  control.stop = &stop;
  KernelHarness harness(spec, Normal(spec, 3), {});
  EXPECT_EQ(harness.Run(*made.kernel, control).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(made.cudnn->runs(), 1);
}

// A rectangle in which all scores are −infinity or NaN, beside one of ordinary scores.
TEST(CudnnKernel, RectanglesOutOfRangeMergeAsTheyShould) {
  for (const bool nan : {false, true}) {
    AttentionSpec spec = Spec(DataType::kBf16, 1, 1, 16);
    spec.sequences = {Rows(9, 40)};
    Cuts cuts;
    cuts.keys = {24};
    reference::Input input = Normal(spec, 7);
    for (double& q : input.q) q = 1e38;
    for (int64_t key = 0; key < 40; ++key)
      for (int64_t d = 0; d < 16; ++d)
        input.k[key * 16 + d] = key >= 24 ? 0 : nan ? std::nan("") : -1e38;
    const Made made = Make();
    KernelHarness ours(spec, input, cuts), theirs(spec, input, cuts);
    ASSERT_TRUE(ours.Run(*made.kernel).ok());
    ASSERT_TRUE(theirs.Run(*MakeEmulatedKernel(32 << 10)).ok());
    EXPECT_EQ(made.cudnn->runs(), 2);
    const reference::Answer a = ours.answer(), b = theirs.answer();
    for (size_t i = 0; i < a.out.size(); ++i) {
      EXPECT_EQ(std::isnan(a.out[i]), nan);
      EXPECT_EQ(std::isnan(b.out[i]), nan);
      if (nan) continue;
      EXPECT_NEAR(a.out[i], b.out[i], 0.02);
    }
  }
}

TEST(CudnnKernel, PassesTheCheckOfAStart) {
  CpuKernel::Options options;
  options.isa = &kPortableIsa;
  const auto yardstick = *CpuKernel::Create(options);
  CopyProbe device([] {});  // Like a GPU, it does not read tensors in staging.
  const Made made = Make();
  for (const auto check : {&CheckKernel, &CheckKernelsByShape, &CheckNonfinite}) {
    const int64_t runs = made.cudnn->runs();
    const absl::Status status = check(*made.kernel, *yardstick, &device);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_GT(made.cudnn->runs(), runs) << "nothing of cuDNN's was compared";
  }
}

// In fp64, over a row's keys, which an accumulator may have met in several pieces.
TEST(CudnnKernel, TheLargestScoreIsScaled) {
  const Made made = Make();
  AttentionSpec spec = CausalSpec();
  spec.masks.clear();
  spec.scale = 0.01;
  spec.outputs.max_logit = true;
  EXPECT_TRUE(WithinBudget(*made.kernel, spec, Normal(spec, 3), {}));
  EXPECT_GT(made.cudnn->runs(), 0);
}

TEST(CudnnKernel, SaysWhatItIs) {
  EXPECT_EQ(Make().kernel->Description(), "cuda/mma (emulated) + cudnn 9.19.0");
}

}  // namespace
}  // namespace annulus::cuda

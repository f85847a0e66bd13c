#include "worker/lane/solo_lane.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/worker/lane/lane_harness.h"

namespace annulus {
namespace {

using Event = control::v1::WorkerEvent;

TEST(SoloLaneTest, AReleaseEndsACopyWhichCountsAsProgress) {
  std::shared_ptr<InProcessHub> none;
  std::atomic<int> copies{0};
  std::vector<int64_t> progress;
  LaneHost* of = nullptr;
  LaneHost::Options options;
  options.before_copy = [&] {
    progress.push_back(of->solo().gauge()->steps());
    if (++copies == 2) of->solo().Release({"dropped", 1, 0});
  };
  LaneHost host(&none, std::move(options));
  of = &host;
  host.RunSolo(host.Work(LaneSpec(8), 0, 1, "dropped"));
  host.RunSolo(host.Work(LaneSpec(8), 0, 1, "wanted"));
  const auto ready = host.log.Wait(Event::kOutputReady);
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->output_ready().shard().job_id(), "wanted");
  EXPECT_EQ(host.log.Count(Event::kShardFailed), 0);
  EXPECT_EQ(copies.load(), 2 + 5);  // q, k, v, the output, its LSE.
  for (size_t i = 1; i < progress.size(); ++i) EXPECT_GT(progress[i], progress[i - 1]);
}

// Blocks stay in staging: nothing is copied, and the device holds only the partial.
TEST(SoloLaneTest, OnADeviceThatReadsStagingNothingIsCopied) {
  std::shared_ptr<InProcessHub> none;
  std::vector<float> outputs[2], lses[2];
  int64_t device_bytes[2] = {};
  for (const bool reads_staging : {false, true}) {
    std::atomic<int> copies{0};
    LaneHost* of = nullptr;
    LaneHost::Options options;
    options.reads_staging = reads_staging;
    options.before_copy = [&] { ++copies; };
    options.before_call = [&] {
      device_bytes[reads_staging ? 1 : 0] = of->device().used_bytes();
      return absl::OkStatus();
    };
    LaneHost host(&none, options);
    of = &host;
    const ShardWork work = host.Work(LaneSpec(8), 0, 1);
    host.RunSolo(work);
    ASSERT_TRUE(host.log.Wait(Event::kOutputReady).has_value());
    EXPECT_EQ(copies.load(), reads_staging ? 0 : 5);
    outputs[reads_staging ? 1 : 0] = LaneHost::Output(*work.staged, TensorId::kOut);
    lses[reads_staging ? 1 : 0] = LaneHost::Output(*work.staged, TensorId::kLse);
  }
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_EQ(lses[0], lses[1]);
  EXPECT_EQ(device_bytes[1], 8 * 2 * (4 + 2) * 4);  // Rows, heads, the sum and its two numbers.
  EXPECT_GT(device_bytes[0], 2 * device_bytes[1]);
}

TEST(SoloLaneTest, ReleasedJobsLeaveTheirPlacesToOthers) {
  std::shared_ptr<InProcessHub> none;
  Gate gate;
  LaneHost::Options options = HeldUpBy(&gate);
  options.max_waiting = 2;
  LaneHost host(&none, std::move(options));
  host.RunSolo(host.Work(LaneSpec(8), 0, 1, "running"));
  EXPECT_TRUE(gate.AwaitOne());
  for (int i = 0; i < 10; ++i) {
    host.RunSolo(host.Work(LaneSpec(8), 0, 1, std::to_string(i)));
    host.solo().Release({std::to_string(i), 1, 0});
  }
  for (const char* job : {"second", "third", "late"})
    host.RunSolo(host.Work(LaneSpec(8), 0, 1, job));
  const auto failed = host.log.Wait(Event::kShardFailed);
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->shard_failed().shard().job_id(), "late");
  gate.Open();
  for (const char* job : {"running", "second", "third"}) {
    const auto ready = host.log.Wait(Event::kOutputReady);
    ASSERT_TRUE(ready.has_value());
    EXPECT_EQ(ready->output_ready().shard().job_id(), job);
  }
  EXPECT_EQ(host.log.Count(Event::kShardFailed), 1);
}

// Principals alternate in the order of their jobs. Within a principal, the most important job runs
// first; 10 s of waiting count as one step.
TEST(SoloLaneTest, PriorityAndWaitingTimeOrderThePrincipalsOwnJobs) {
  std::shared_ptr<InProcessHub> none;
  Gate gate;
  absl::Time now = absl::UnixEpoch();
  LaneHost::Options options = HeldUpBy(&gate);
  options.now = [&now] { return now; };
  LaneHost host(&none, std::move(options));
  host.RunSolo(host.Work(LaneSpec(8), 0, 1, "running"));
  EXPECT_TRUE(gate.AwaitOne());
  struct Job {
    const char *name, *principal;
    int32_t priority;
    int64_t second;
  };
  for (const Job& job : {Job{"a, plain", "a", 0, 0}, Job{"b, plain", "b", 0, 1},
                         Job{"a, important", "a", 1, 2}, Job{"a, important too", "a", 1, 3},
                         Job{"b, unimportant", "b", -3, 4}, Job{"a, too late", "a", 1, 11},
                         Job{"b, last", "b", 0, 33}, Job{"b, urgent", "b", 10, 40}}) {
    now = absl::FromUnixSeconds(job.second);
    ShardWork work = host.Work(LaneSpec(8), 0, 1, job.name);
    work.principal = job.principal;
    work.request.execution.priority = job.priority;
    host.RunSolo(work);
  }
  gate.Open();
  for (const char* job : {"running", "a, important", "b, urgent", "a, important too", "a, plain",
                          "b, plain", "a, too late", "b, last", "b, unimportant"}) {
    const auto ready = host.log.Wait(Event::kOutputReady);
    ASSERT_TRUE(ready.has_value());
    EXPECT_EQ(ready->output_ready().shard().job_id(), job);
  }
}

TEST(SoloLaneTest, AReleasedJobIsNotHeardOf) {
  std::shared_ptr<InProcessHub> none;
  Gate gate;
  LaneHost host(&none, HeldUpBy(&gate));
  host.RunSolo(host.Work(LaneSpec(8), 0, 1, "running"));
  host.RunSolo(host.Work(LaneSpec(8), 0, 1, "waiting"));
  host.RunSolo(host.Work(LaneSpec(8), 0, 1, "wanted"));
  EXPECT_TRUE(gate.AwaitOne());
  EXPECT_TRUE(host.solo().gauge()->Read().busy);
  EXPECT_EQ(host.solo().gauge()->Read().shard.job_id, "running");
  const int64_t three = host.staging().used_bytes();
  host.solo().Release({"running", 1, 0});
  host.solo().Release({"waiting", 1, 0});
  // Released at once, not only when its turn comes.
  EXPECT_EQ(host.staging().used_bytes(), three / 3 * 2);
  gate.Open();
  const auto ready = host.log.Wait(Event::kOutputReady);
  ASSERT_TRUE(ready.has_value());
  EXPECT_EQ(ready->output_ready().shard().job_id(), "wanted");
  EXPECT_EQ(host.log.Count(Event::kShardFailed), 0);
}

// The device is lost for all other jobs too.
TEST(SoloLaneTest, AFaultOfTheDeviceIsToldThoughTheJobWasReleased) {
  std::shared_ptr<InProcessHub> none;
  LaneHost* of = nullptr;
  LaneHost::Options options;
  options.before_call = [&of] {
    of->solo().Release({"job", 1, 0});
    return MakeError(absl::StatusCode::kInternal, "a fault",
                     {std::string(kReasonDeviceFault), {}, {}, {}});
  };
  LaneHost host(&none, std::move(options));
  of = &host;
  host.RunSolo(host.Work(LaneSpec(8), 0, 1));
  const auto failed = host.log.Wait(Event::kShardFailed);
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->shard_failed().error().reason(), kReasonDeviceFault);
}

// Records the thread of the last kernel call. The rates make LaneSpec(8) short.
LaneHost::Options ShortJobs(std::atomic<std::thread::id>* called_by) {
  LaneHost::Options options;
  options.rates = {KernelRates()};
  options.before_call = [called_by] {
    *called_by = std::this_thread::get_id();
    return absl::OkStatus();
  };
  return options;
}

TEST(SoloLaneTest, AShortJobThatComesAloneRunsWhereItBecomesComplete) {
  std::shared_ptr<InProcessHub> none;
  std::atomic<std::thread::id> called_by{};
  LaneHost host(&none, ShortJobs(&called_by));
  for (const int done : {1, 2}) {
    host.RunSolo(host.Work(LaneSpec(8), 0, 1));
    EXPECT_EQ(host.log.Count(Event::kOutputReady), done);
    EXPECT_EQ(called_by.load(), std::this_thread::get_id());
  }
}

TEST(SoloLaneTest, AllOthersRunOnTheLanesThread) {
  std::shared_ptr<InProcessHub> none;
  std::atomic<std::thread::id> called_by{};
  LaneHost::Options slow = ShortJobs(&called_by), reads = slow, bound = slow, unmeasured = slow;
  slow.rates[0].rates[0].pair_seconds = 4.1e-6;  // 128 pairs × heads: more than half a ms.
  reads.rates[0].rates[0].key_seconds = 6.4e-5;  // 8 keys.
  bound.any_thread = false;
  unmeasured.rates.clear();
  for (const LaneHost::Options& options : {slow, reads, bound, unmeasured}) {
    LaneHost host(&none, options);
    host.RunSolo(host.Work(LaneSpec(8), 0, 1));
    ASSERT_TRUE(host.log.Wait(Event::kOutputReady).has_value());
    EXPECT_NE(called_by.load(), std::this_thread::get_id());
  }
  // Programs that take long to build, although their kernels are short.
  AttentionSpec many = LaneSpec(1), chunks = LaneSpec(8), ranges = LaneSpec(8);
  many.sequences.resize(65, many.sequences[0]);
  chunks.masks[0].chunk = 1;
  ranges.masks[0].ranges.resize(64, MaskRange{0, 8, 0, 8});
  // Jobs that wait for memory, or clear much of it, for few pairs or none.
  AttentionSpec keys = LaneSpec(1), queries = LaneSpec(1);
  keys.sequences[0].kv_len = queries.sequences[0].q_len = 1 << 17;
  queries.sequences[0].kv_len = 0;
  for (const AttentionSpec& spec : {many, chunks, ranges, keys, queries}) {
    LaneHost::Options fast = ShortJobs(&called_by);
    fast.rates[0].rates[0].pair_seconds = 1e-9;
    fast.device_bytes = 32 << 20;
    LaneHost host(&none, fast);
    host.RunSolo(host.Work(spec, 0, 1));
    ASSERT_TRUE(host.log.Wait(Event::kOutputReady).has_value());
    EXPECT_NE(called_by.load(), std::this_thread::get_id());
  }
  LaneHost host(&none, ShortJobs(&called_by));
  host.solo().Add(host.Work(LaneSpec(8), 0, 1, "on its way"));
  host.RunSolo(host.Work(LaneSpec(8), 0, 1, "beside it"));
  ASSERT_TRUE(host.log.Wait(Event::kOutputReady).has_value());
  EXPECT_NE(called_by.load(), std::this_thread::get_id());
}

TEST(SoloLaneTest, WhatComesWhileAShortJobRunsIsLeftToTheLanesThread) {
  std::shared_ptr<InProcessHub> none;
  std::atomic<std::thread::id> called_by{};
  Gate gate;
  LaneHost::Options options = ShortJobs(&called_by);
  options.before_call = [note = options.before_call, &gate] {
    gate.Pass();
    return note();
  };
  LaneHost host(&none, std::move(options));
  std::thread first([&] { host.RunSolo(host.Work(LaneSpec(8), 0, 1, "first")); });
  EXPECT_TRUE(gate.AwaitOne());
  host.RunSolo(host.Work(LaneSpec(8), 0, 1, "second"));
  EXPECT_EQ(host.log.Count(Event::kOutputReady), 0);
  const std::thread::id first_thread = first.get_id();
  gate.Open();
  for (const char* job : {"first", "second"}) {
    const auto ready = host.log.Wait(Event::kOutputReady);
    ASSERT_TRUE(ready.has_value());
    EXPECT_EQ(ready->output_ready().shard().job_id(), job);
  }
  first.join();
  EXPECT_NE(called_by.load(), std::this_thread::get_id());
  EXPECT_NE(called_by.load(), first_thread);
}

TEST(SoloLaneTest, ItsEndWaitsForAShortJobOfAnotherThread) {
  std::shared_ptr<InProcessHub> none;
  std::atomic<std::thread::id> called_by{};
  std::atomic<bool> through{false};
  Gate gate;
  LaneHost::Options options = ShortJobs(&called_by);
  options.before_call = [&] {
    gate.Pass();
    through = true;
    return absl::OkStatus();
  };
  LaneHost host(&none, std::move(options));
  std::thread running([&] { host.RunSolo(host.Work(LaneSpec(8), 0, 1)); });
  EXPECT_TRUE(gate.AwaitOne());
  std::thread ending([&] {
    host.DestroySolo();
    EXPECT_TRUE(through);
  });
  gate.Open();
  running.join();
  ending.join();
}

}  // namespace
}  // namespace annulus

// A worker with a slow Reserve continues all other work.
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "proto/wire/convert.h"
#include "tests/worker/agent/fake_coordinator.h"
#include "tests/worker/small_worker.h"
#include "worker/worker.h"

namespace annulus {
namespace {

using Command = control::v1::WorkerCommand;
using Event = control::v1::WorkerEvent;

class LongLayoutTest : public testing::Test {
 protected:
  LongLayoutTest() {
    worker_ = *Worker::Start(SmallWorkerOptions(coordinator_.address()));
    EXPECT_TRUE(coordinator_.log.Wait(Event::kRegister).has_value());
  }
  // Rank 0 of two. Without rows the shard is complete at once.
  void Reserve(const std::string& job, Layout layout, int sequences, int64_t rows) {
    Command command;
    control::v1::Reserve& reserve = *command.mutable_reserve();
    reserve.mutable_shard()->set_job_id(job);
    reserve.mutable_shard()->set_attempt(1);
    AttentionSpec spec;
    spec.dtype = DataType::kFp32;
    spec.q_heads = spec.kv_heads = 64;
    spec.head_dim = 4;
    spec.sequences.resize(sequences);
    for (Sequence& sequence : spec.sequences) sequence.q_len = sequence.kv_len = rows;
    for (int32_t head = 0; head < spec.q_heads && rows > 0; ++head) {
      Mask mask;
      mask.window_left = head;
      mask.causal = true;
      mask.query_heads = {head};
      spec.masks.push_back(mask);
    }
    *reserve.mutable_spec() = SpecToProto(spec);
    Execution execution;
    execution.strategy = Strategy::kRingPassKv;
    execution.layout = layout;
    execution.world_size = 2;
    *reserve.mutable_execution() = ExecutionToProto(execution);
    reserve.set_granule(1);
    reserve.mutable_upload_time()->set_seconds(60);
    coordinator_.Order(command);
  }
  void Drop(const std::string& job) {
    Command command;
    command.mutable_drop()->mutable_shard()->set_job_id(job);
    command.mutable_drop()->mutable_shard()->set_attempt(1);
    coordinator_.Order(command);
  }
  // The job of the next event of this kind.
  std::string JobOf(Event::EventCase end) {
    const auto event = coordinator_.log.Wait(end);
    if (!event) return "none";
    return end == Event::kShardComplete ? event->shard_complete().shard().job_id()
           : end == Event::kShardFailed ? event->shard_failed().shard().job_id()
                                        : event->dropped().shard().job_id();
  }
  FakeCoordinator coordinator_;
  std::unique_ptr<Worker> worker_;
};

TEST_F(LongLayoutTest, OthersAreOpenedMeanwhile) {
  Reserve("long", Layout::kByArea, 60000, 16);
  Reserve("other", Layout::kContiguous, 1, 0);
  EXPECT_EQ(JobOf(Event::kShardComplete), "other");
  EXPECT_EQ(coordinator_.log.Count(Event::kShardFailed), 0) << "the first one is at it";
  EXPECT_EQ(JobOf(Event::kShardFailed), "long") << "it does not fit";
  Drop("long");
  EXPECT_EQ(JobOf(Event::kDropped), "long");
  Reserve("next", Layout::kByArea, 1, 0);
  EXPECT_EQ(JobOf(Event::kShardComplete), "next");
  Drop("next");
  EXPECT_EQ(JobOf(Event::kDropped), "next");
}

TEST_F(LongLayoutTest, WhatIsDroppedMeanwhileIsFreed) {
  Reserve("long", Layout::kByArea, 60000, 16);
  Reserve("behind it", Layout::kByArea, 1, 0);
  Drop("behind it");
  Drop("long");
  const std::string first = JobOf(Event::kDropped), second = JobOf(Event::kDropped);
  EXPECT_EQ(first, "long");
  EXPECT_EQ(second, "behind it");
  EXPECT_EQ(coordinator_.log.Count(Event::kShardComplete), 0) << "it was not opened";
}

}  // namespace
}  // namespace annulus

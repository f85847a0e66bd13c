// Some workers serve a job and others do not: bf16x3, which needs AMX.

#include <optional>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tests/server/coordinator/coordinator_harness.h"

namespace annulus {
namespace {

class ServingTest : public testing::Test {
 protected:
  explicit ServingTest(CoordinatorOptions options = {}) : harness_(options) {}

  void Serving() { harness_.bf16x3_pair_seconds = 2e-9; }
  void Lacking() { harness_.bf16x3_pair_seconds = 0; }
  static v1::RunJobRequest Bf16x3(int32_t world_size) {
    v1::RunJobRequest request = CoordinatorHarness::Request(world_size);
    request.mutable_spec()->set_arithmetic(v1::AttentionSpec::ARITHMETIC_BF16X3);
    return request;
  }
  // The endpoint of the n-th rank of a job.
  std::string EndpointOf(int64_t call, int rank = 0) {
    return harness_.Placed(call).shards(rank).endpoint();
  }
  std::optional<absl::Status> Refusal(int64_t call) { return harness_.call(call).finished; }
  v1::CapabilityInfo ToldOf(const char* feature) {
    for (const v1::CapabilityInfo& told : harness_.Info().capabilities()) {
      if (told.feature() == feature) return told;
    }
    ADD_FAILURE() << "nothing is told of " << feature;
    return {};
  }
  // Completes plans made elsewhere.
  void Plan() {
    for (const auto& [plan, wanted] : std::exchange(harness_.plans_wanted, {})) {
      harness_.Handle(event::Planned{plan, harness_.MakePlan(wanted)});
    }
  }

  CoordinatorHarness harness_;
};

TEST_F(ServingTest, JobsOfOneWorkerGoToThoseThatServeThem) {
  Lacking();
  harness_.AddWorker("a");
  Serving();
  harness_.AddWorker("b");
  harness_.Execute();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(EndpointOf(harness_.Run(Bf16x3(1))), "b:8004") << i;
    EXPECT_EQ(harness_.planned_pair_seconds, 2e-9) << "the other's rate does not count";
  }
  EXPECT_EQ(EndpointOf(harness_.Run(harness_.Request(1))), "a:8004") << "the one with less to do";
}

TEST_F(ServingTest, GroupJobsGoToGroupsWhoseRanksServeThem) {
  Serving();
  for (const char* slot : {"a", "b"}) harness_.AddWorker(slot);
  Lacking();
  for (const char* slot : {"c", "d"}) harness_.AddWorker(slot);
  harness_.Advance(absl::Seconds(1));
  harness_.Execute();
  for (int i = 0; i < 2; ++i) {
    const int64_t call = harness_.Run(Bf16x3(2));
    EXPECT_EQ(EndpointOf(call, 0), "a:8004");
    EXPECT_EQ(EndpointOf(call, 1), "b:8004");
  }
  // The third job waits for that group, although another one is free.
  EXPECT_EQ(harness_.StateOf(harness_.Run(Bf16x3(2))), v1::Job::STATE_QUEUED);
  EXPECT_EQ(EndpointOf(harness_.Run(harness_.Request(2))), "c:8004");
  // The number of workers that is useful, limited by those present.
  harness_.auto_size = 8;
  harness_.Run(Bf16x3(0));
  EXPECT_EQ(harness_.planned_size, 2);
  const int64_t refused = harness_.Run(Bf16x3(3));
  ASSERT_TRUE(Refusal(refused).has_value());
  EXPECT_EQ(ReasonOf(*Refusal(refused)), "INSUFFICIENT_WORKERS");
  EXPECT_EQ(DetailOf(*Refusal(refused)).metadata.at("ready_workers"), "2");
}

// Workers a and b serve it, c does not; b is lost. New ones may register.
TEST_F(ServingTest, TooFewThatServeItAreTooFewWorkers) {
  Serving();
  for (const char* slot : {"a", "b"}) harness_.AddWorker(slot);
  Lacking();
  harness_.AddWorker("c");
  harness_.Advance(absl::Seconds(1));
  harness_.Execute();
  for (int i = 0; i < 2; ++i) harness_.Run(Bf16x3(2));
  const int64_t waiting = harness_.Run(Bf16x3(2));
  ASSERT_EQ(harness_.StateOf(waiting), v1::Job::STATE_QUEUED);
  harness_.silent.insert("b");
  harness_.Disconnect(harness_.worker("b"));
  harness_.Advance(absl::Seconds(5));
  Plan();
  const int64_t refused = harness_.Run(Bf16x3(2));
  harness_.Advance(absl::Seconds(30));
  for (const int64_t call : {refused, waiting}) {
    ASSERT_TRUE(Refusal(call).has_value());
    EXPECT_EQ(ReasonOf(*Refusal(call)), "INSUFFICIENT_WORKERS") << *Refusal(call);
    EXPECT_EQ(DetailOf(*Refusal(call)).metadata.at("ready_workers"), "1");
  }
}

// Two workers serve it, but each is in a group with one that does not.
TEST_F(ServingTest, ServersInNoGroup) {
  Serving();
  harness_.AddWorker("a");
  harness_.AddWorker("d");
  Lacking();
  harness_.AddWorker("b");
  harness_.AddWorker("c");
  harness_.Advance(absl::Seconds(1));
  harness_.Execute();
  const int64_t refused = harness_.Run(Bf16x3(2));
  ASSERT_TRUE(Refusal(refused).has_value());
  EXPECT_EQ(ReasonOf(*Refusal(refused)), "INSUFFICIENT_WORKERS");
  EXPECT_EQ(DetailOf(*Refusal(refused)).metadata.at("ready_workers"), "2");
  EXPECT_NE(Refusal(refused)->message().find("in no common group"), std::string::npos);
}

// The only worker that serves it is suspect and gets time to return.
TEST_F(ServingTest, ASuspectMayComeBack) {
  Serving();
  harness_.AddWorker("a");
  Lacking();
  harness_.AddWorker("b");
  harness_.Disconnect(harness_.worker("a"));
  const int64_t refused = harness_.Run(Bf16x3(0));
  ASSERT_TRUE(Refusal(refused).has_value());
  EXPECT_EQ(ReasonOf(*Refusal(refused)), "NO_WORKERS");
  EXPECT_TRUE(DetailOf(*Refusal(refused)).retry_after.has_value());
}

TEST_F(ServingTest, WhatOneReadyWorkerServesIsServed) {
  const auto bf16x3 = [&] { return ToldOf("arithmetic/bf16x3"); };
  Lacking();
  harness_.AddWorker("a");
  EXPECT_FALSE(bf16x3().served());
  EXPECT_EQ(bf16x3().why_not(), "It needs a CPU with AMX.");
  control::v1::WorkerEvent event = harness_.RegisterEvent("g", "i0");
  control::v1::Lack* lack = event.mutable_register_()->add_lacks();
  lack->set_feature("mask/causal");
  lack->set_why_not("It sees everything.");
  harness_.Connect(harness_.worker("g"), event);
  EXPECT_TRUE(ToldOf("mask/causal").served()) << "a serves it";
  Serving();
  harness_.AddWorker("b");
  EXPECT_TRUE(bf16x3().served());
  EXPECT_EQ(bf16x3().why_not(), "");
  harness_.Disconnect(harness_.worker("b"));
  EXPECT_FALSE(bf16x3().served()) << "it is not ready";
}

TEST_F(ServingTest, NoWorkerThatServesIt) {
  Lacking();
  harness_.Start(2);
  const int64_t call = harness_.Run(Bf16x3(0));
  ASSERT_TRUE(Refusal(call).has_value());
  EXPECT_EQ(Refusal(call)->code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ReasonOf(*Refusal(call)), "NOT_SERVED");
  EXPECT_EQ(DetailOf(*Refusal(call)).fields.at(0).field, "spec.arithmetic");
  EXPECT_EQ(DetailOf(*Refusal(call)).metadata.at("features"), "arithmetic/bf16x3");
  EXPECT_NE(Refusal(call)->message().find("(worker w0, cpu/test)"), std::string::npos);
}

CoordinatorOptions OneJobAWorker() {
  CoordinatorOptions options;
  options.solo_jobs_per_worker = 1;
  return options;
}
v1::RunJobRequest Deterministic(int32_t world_size) {
  v1::RunJobRequest request = CoordinatorHarness::Request(world_size);
  request.mutable_spec()->set_deterministic(true);
  return request;
}

TEST_F(ServingTest, DeterministicJobsAreForWorkersThatAreAlike) {
  harness_.Start(2);
  EXPECT_EQ(harness_.StateOf(harness_.Run(Deterministic(2))), v1::Job::STATE_UPLOADING);
  EXPECT_TRUE(ToldOf("deterministic").served());
  harness_.arithmetic = "cpu/other";
  harness_.AddWorker("x");
  for (int32_t size : {0, 1, 2}) {
    const std::optional<absl::Status> refusal = Refusal(harness_.Run(Deterministic(size)));
    ASSERT_TRUE(refusal.has_value()) << size;
    EXPECT_EQ(refusal->code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(ReasonOf(*refusal), "MIXED_WORKERS");
    EXPECT_EQ(DetailOf(*refusal).fields.at(0).field, "spec.deterministic");
    EXPECT_NE(refusal->message().find("w0 (cpu/test) and x (cpu/other)"), std::string::npos);
  }
  for (const char* feature : {"deterministic", "deterministic/gradients"}) {
    EXPECT_FALSE(ToldOf(feature).served());
    EXPECT_NE(ToldOf(feature).why_not().find("w0 (cpu/test) and x (cpu/other)"), std::string::npos);
  }
  EXPECT_EQ(harness_.StateOf(harness_.Run(harness_.Request(1))), v1::Job::STATE_UPLOADING);
  harness_.silent.insert("x");
  harness_.Disconnect(harness_.worker("x"));
  harness_.Advance(absl::Seconds(10));
  harness_.Execute();
  const int64_t call = harness_.Run(Deterministic(1));
  EXPECT_EQ(harness_.StateOf(call), v1::Job::STATE_UPLOADING)
      << Refusal(call).value_or(absl::OkStatus());
}

class BusyServingTest : public ServingTest {
 protected:
  BusyServingTest() : ServingTest(OneJobAWorker()) {}
};

TEST_F(BusyServingTest, AJobThatWaitsNeverGoesToOneThatJoinsAndDoesNotServeIt) {
  Serving();
  harness_.Start(1);
  const int64_t first = harness_.Run(Bf16x3(1));
  const int64_t second = harness_.Run(Bf16x3(1));
  EXPECT_EQ(harness_.StateOf(second), v1::Job::STATE_QUEUED);
  Lacking();
  harness_.AddWorker("x");
  harness_.Advance(absl::Seconds(1));
  harness_.Execute();
  EXPECT_EQ(harness_.StateOf(second), v1::Job::STATE_QUEUED);
  EXPECT_EQ(EndpointOf(harness_.Run(harness_.Request(1))), "x:8004") << "it keeps nobody waiting";
  harness_.Upload(harness_.JobOf(first));
  harness_.OutputsReady(harness_.JobOf(first));
  EXPECT_EQ(EndpointOf(second), "w0:8004");
}

TEST_F(BusyServingTest, AJobThatWaitsForNobodyEnds) {
  Serving();
  harness_.Start(1);
  harness_.Run(Bf16x3(1));
  const int64_t waiting = harness_.Run(Bf16x3(0));
  Lacking();
  harness_.AddWorker("x");
  harness_.silent.insert("w0");
  harness_.Disconnect(harness_.worker("w0"));
  harness_.Advance(absl::Seconds(5));
  Plan();
  harness_.Advance(absl::Seconds(25));
  EXPECT_EQ(harness_.StateOf(waiting), v1::Job::STATE_FAILED);
  ASSERT_TRUE(Refusal(waiting).has_value());
  EXPECT_EQ(ReasonOf(*Refusal(waiting)), "NOT_SERVED");
  EXPECT_EQ(DetailOf(*Refusal(waiting)).metadata.at("slot"), "x");
}

TEST_F(BusyServingTest, ADeterministicJobIsNotPlacedBesideAnotherKernelPath) {
  harness_.Start(1);
  const int64_t first = harness_.Run(Deterministic(1));
  const int64_t waiting = harness_.Run(Deterministic(1));
  harness_.arithmetic = "cpu/other";
  harness_.AddWorker("x");
  harness_.Execute();
  harness_.Upload(harness_.JobOf(first));
  harness_.OutputsReady(harness_.JobOf(first));
  EXPECT_EQ(harness_.StateOf(waiting), v1::Job::STATE_QUEUED);
  harness_.Advance(absl::Seconds(30));
  EXPECT_EQ(harness_.StateOf(waiting), v1::Job::STATE_FAILED);
  EXPECT_EQ(ReasonOf(*Refusal(waiting)), "MIXED_WORKERS");
}

}  // namespace
}  // namespace annulus

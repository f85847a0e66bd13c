#ifndef ANNULUS_TESTS_SERVER_COORDINATOR_KEPT_STATE_CASE_H_
#define ANNULUS_TESTS_SERVER_COORDINATOR_KEPT_STATE_CASE_H_

#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "proto/wire/convert.h"
#include "tests/server/coordinator/coordinator_harness.h"

namespace annulus {

// Shared by tests of kept states: forward jobs that keep theirs, and gradients jobs that use it.
inline constexpr int64_t kRows = 16;

class KeptStateTest : public testing::Test {
 protected:
  explicit KeptStateTest(const CoordinatorOptions& options = {}) : harness_(options) {}
  static v1::RunJobRequest Forward(int32_t ranks, absl::Duration keep = absl::Minutes(1)) {
    v1::RunJobRequest request = CoordinatorHarness::Request(ranks, kRows);
    *request.mutable_spec()->mutable_forward()->mutable_keep_state() = DurationToProto(keep);
    return request;
  }
  static v1::RunJobRequest Gradients(const std::string& state, bool release = false) {
    v1::RunJobRequest request = CoordinatorHarness::Request(0, kRows);
    request.mutable_spec()->mutable_gradients()->set_state(state);
    request.mutable_spec()->mutable_gradients()->set_release_state(release);
    return request;
  }
  void Finish(int64_t call, int32_t attempt = 1) {
    const std::string job = harness_.JobOf(call);
    harness_.Upload(job, attempt);
    harness_.Execute();
    if (harness_.StateOf(call) != v1::Job::STATE_DRAINING) harness_.OutputsReady(job, attempt);
    harness_.Fetch(job, attempt);
    harness_.Execute();
  }
  // Runs a forward job to success.
  std::string Keep(int32_t ranks, absl::Duration keep = absl::Minutes(1)) {
    const int64_t call = harness_.Run(Forward(ranks, keep));
    Finish(call);
    EXPECT_EQ(harness_.StateOf(call), v1::Job::STATE_SUCCEEDED);
    return harness_.JobOf(call);
  }
  v1::KeptState::Status StatusOf(const std::string& job) {
    return harness_.Get(job).kept_state().status();
  }
  int64_t Staged() {
    int64_t bytes = 0;
    for (const v1::WorkerInfo& worker : harness_.Info().workers()) {
      bytes += worker.staging().used_bytes();
    }
    return bytes;
  }
  void ExpectIdle() {
    harness_.Execute();
    for (const v1::WorkerInfo& worker : harness_.Info().workers()) {
      EXPECT_EQ(worker.staging().used_bytes(), 0) << worker.slot();
      EXPECT_EQ(worker.device().used_bytes(), 0) << worker.slot();
      EXPECT_EQ(worker.kept().used_bytes(), 0) << worker.slot();
    }
    EXPECT_TRUE(harness_.tables().runs.all().empty());
    EXPECT_TRUE(harness_.tables().keeping.empty());
    EXPECT_EQ(harness_.tables().jobs.active(), 0u);
  }
  absl::Status ErrorOf(int64_t call) {
    return harness_.call(call).finished.value_or(absl::OkStatus());
  }
  absl::Status Release(const std::string& job, const std::string& principal = "anonymous") {
    const int64_t call = harness_.NewCall();
    harness_.Handle(event::ReleaseState{call, principal, job});
    return harness_.call(call).answer->status();
  }
  // The Reserve of a job's rank 0 or 1 on "w0" or "w1".
  control::v1::Reserve ReserveOf(const std::string& slot, const std::string& job,
                                 int32_t attempt = 1) {
    for (const control::v1::WorkerCommand& command : harness_.worker(slot).history) {
      const control::v1::ShardKey& shard = command.reserve().shard();
      if (shard.job_id() == job && shard.attempt() == attempt) return command.reserve();
    }
    ADD_FAILURE() << slot << " was not asked to reserve for " << job;
    return {};
  }
  void Leave(const std::string& slot) {
    control::v1::WorkerEvent event;
    event.mutable_leaving();
    harness_.Say(harness_.worker(slot), event);
  }
  void BreakGroup() {
    control::v1::WorkerEvent event;
    *event.mutable_group_broken()->mutable_generation() =
        harness_.tables().GenerationOf(harness_.tables().groups.all().begin()->first);
    event.mutable_group_broken()->mutable_cause()->set_code(14);
    event.mutable_group_broken()->mutable_cause()->set_reason("PEER_LOST");
    harness_.Say(harness_.worker("w0"), event);
  }
  CoordinatorHarness harness_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_SERVER_COORDINATOR_KEPT_STATE_CASE_H_

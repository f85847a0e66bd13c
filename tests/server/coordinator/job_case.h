#ifndef ANNULUS_TESTS_SERVER_COORDINATOR_JOB_CASE_H_
#define ANNULUS_TESTS_SERVER_COORDINATOR_JOB_CASE_H_

#include "gtest/gtest.h"
#include "tests/server/coordinator/coordinator_harness.h"

namespace annulus {

// A coordinator, and the conditions that hold when a job is over.
class JobCase : public testing::Test {
 protected:
  void ExpectIdle() {
    harness_.Execute();
    for (const v1::WorkerInfo& worker : harness_.Info().workers()) {
      EXPECT_EQ(worker.staging().used_bytes(), 0) << worker.slot();
      EXPECT_EQ(worker.device().used_bytes(), 0) << worker.slot();
    }
    EXPECT_TRUE(harness_.tables().runs.all().empty());
  }
  int CountTerminal(int64_t call) {
    int count = 0;
    for (const v1::JobEvent& event : harness_.call(call).events) {
      count +=
          event.has_state_changed() && event.state_changed().state() >= v1::Job::STATE_SUCCEEDED;
    }
    return count;
  }
  CoordinatorHarness harness_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_SERVER_COORDINATOR_JOB_CASE_H_

// A worker's advertised address, and its exit in favour of a new process.
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "proto/wire/convert.h"
#include "tests/worker/agent/fake_coordinator.h"
#include "tests/worker/small_worker.h"
#include "worker/worker.h"

namespace annulus {
namespace {

using Command = control::v1::WorkerCommand;
using Event = control::v1::WorkerEvent;

void Await(const std::function<bool()>& condition) {
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (!condition() && absl::Now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(condition());
}

TEST(WorkerOptionsTest, ClientsAreToldTheAdvertisedPlace) {
  FakeCoordinator coordinator;
  WorkerOptions options = SmallWorkerOptions(coordinator.address());
  options.data_address = "[::1]:0";
  const std::string own = (*Worker::Start(options))->data_endpoint();
  EXPECT_EQ(own.find("[::1]:"), 0u) << own;
  EXPECT_NE(own, "[::1]:0");
  options.data_address = "127.0.0.1:0";
  options.advertise_host = "worker.example";
  const std::string port_of_its_own = (*Worker::Start(options))->data_endpoint();
  EXPECT_EQ(port_of_its_own.find("worker.example:"), 0u) << port_of_its_own;
  EXPECT_NE(port_of_its_own, "worker.example:0");
  options.advertise_port = 81;
  EXPECT_EQ((*Worker::Start(options))->data_endpoint(), "worker.example:81");
}

class WornWorkerTest : public testing::Test {
 protected:
  WornWorkerTest() {
    WorkerOptions options = SmallWorkerOptions(coordinator_.address());
    options.drain_timeout = absl::Minutes(5);
    options.exit = [this](int code) { exit_code_ = code; };
    options.engine.worn = [this]() -> std::string {
      ++asked_;
      return worn_ ? "it has lost a lot" : "";
    };
    worker_ = *Worker::Start(options);
    EXPECT_TRUE(coordinator_.log.Wait(Event::kBeat).has_value()) << "it has been welcomed";
  }
  // A shard without rows, which is kept from now on.
  void Hold(const std::string& job) {
    Command command;
    control::v1::Reserve& reserve = *command.mutable_reserve();
    reserve.mutable_shard()->set_job_id(job);
    reserve.mutable_shard()->set_attempt(1);
    AttentionSpec spec;
    spec.q_heads = spec.kv_heads = 1;
    spec.head_dim = 4;
    spec.sequences.resize(1);
    *reserve.mutable_spec() = SpecToProto(spec);
    Execution execution;
    execution.strategy = Strategy::kRingPassKv;
    execution.layout = Layout::kContiguous;
    execution.world_size = 2;
    *reserve.mutable_execution() = ExecutionToProto(execution);
    reserve.set_granule(1);
    coordinator_.Order(command);
    ASSERT_TRUE(coordinator_.log.Wait(Event::kShardComplete).has_value());
  }
  void Drop(const std::string& job) {
    Command command;
    command.mutable_drop()->mutable_shard()->set_job_id(job);
    command.mutable_drop()->mutable_shard()->set_attempt(1);
    coordinator_.Order(command);
  }
  FakeCoordinator coordinator_;
  std::atomic<int> exit_code_{-1}, asked_{0};
  std::atomic<bool> worn_{false};
  std::unique_ptr<Worker> worker_;
};

TEST_F(WornWorkerTest, LeavesWhenItHoldsNothing) {
  Hold("job");
  worn_ = true;
  const int before = asked_;
  Await([&] { return asked_ > before + 1; });
  EXPECT_EQ(coordinator_.log.Count(Event::kLeaving), 0) << "it holds a shard";
  Drop("job");
  ASSERT_TRUE(coordinator_.log.Wait(Event::kLeaving).has_value());
  EXPECT_EQ(exit_code_, -1) << "it is counted on until the coordinator says otherwise";
  Command drain;
  drain.mutable_drain();
  coordinator_.Order(drain);
  Await([&] { return exit_code_ >= 0; });
  EXPECT_EQ(exit_code_, 72);
}

TEST_F(WornWorkerTest, StaysWhereItHasLostNothing) {
  const int before = asked_;
  Await([&] { return asked_ > before + 1; });
  EXPECT_EQ(coordinator_.log.Count(Event::kLeaving), 0);
  EXPECT_EQ(exit_code_, -1);
}

}  // namespace
}  // namespace annulus

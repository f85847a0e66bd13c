#include "worker/agent/control_link.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/time/time.h"
#include "base/steady_time.h"
#include "tests/base/gate.h"
#include "tests/worker/agent/fake_coordinator.h"
#include "tests/worker/agent/mute_proxy.h"

namespace annulus {
namespace {

using Event = control::v1::WorkerEvent;

int CallbackThreads() {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    count += name == "nexting_thread";
  }
  return count;
}

class ControlLinkTest : public testing::Test {
 protected:
  std::unique_ptr<ControlLink> Link(
      std::function<void(int64_t, control::v1::WorkerCommand)> on_command) {
    ControlLink::Options options;
    options.coordinator = coordinator_.address();
    options.credentials = grpc::InsecureChannelCredentials();
    options.on_command = std::move(on_command);
    const auto alive = std::make_shared<int>();
    callbacks_ = alive;
    options.on_closed = [this, alive](int64_t, const absl::Status&) { ++closed_; };
    options.patience = patience_;
    return std::make_unique<ControlLink>(std::move(options));
  }
  // Connects and registers, which is answered.
  static void Greet(ControlLink* link) {
    link->Connect(1);
    Event hello;
    hello.mutable_register_();
    link->Send(hello);
  }

  FakeCoordinator coordinator_;
  absl::Duration patience_ = absl::Seconds(5);
  std::atomic<int> closed_{0};
  std::weak_ptr<int> callbacks_;  // Expires with the link and its streams.
};

// The last channel would take the callback threads along, on one of them:
// proto/rpc/callback_threads.h. This test is first, because nothing restarts them once they are
// kept.
TEST_F(ControlLinkTest, LeavesGrpcItsCallbackThreads) {
  ASSERT_EQ(CallbackThreads(), 0);
  Gate welcomed;
  welcomed.Open();
  {
    const auto link = Link([&](int64_t, const control::v1::WorkerCommand&) { welcomed.Pass(); });
    Greet(link.get());
    ASSERT_TRUE(welcomed.AwaitOne());
    EXPECT_GT(CallbackThreads(), 0);
  }
  EXPECT_EQ(closed_, 1);
  EXPECT_GT(CallbackThreads(), 0);
}

// Like a connection to a host that has gone without closing it and whose name another host has by
// now.
TEST_F(ControlLinkTest, AConnectionThatFallsSilentIsMadeAnew) {
  MuteProxy proxy(coordinator_.address());
  std::atomic<int64_t> welcomed{0}, closed{0};  // Numbers of the last streams.
  ControlLink::Options options;
  options.coordinator = proxy.address();
  options.credentials = grpc::InsecureChannelCredentials();
  options.on_command = [&](int64_t stream, const control::v1::WorkerCommand&) {
    welcomed = stream;
  };
  options.on_closed = [&](int64_t stream, const absl::Status&) { closed = stream; };
  options.keepalive_time = options.keepalive_timeout = absl::Seconds(1);
  ControlLink link(std::move(options));
  Event hello;
  hello.mutable_register_();
  const absl::Time late = SteadyNow() + absl::Seconds(40);
  int64_t stream = 0;
  const auto come_back = [&](int64_t after) {
    while (welcomed <= after && SteadyNow() < late) {
      link.Connect(++stream);
      link.Send(hello);
      while (welcomed <= after && closed < stream && SteadyNow() < late) std::this_thread::yield();
    }
  };
  come_back(0);
  proxy.Mute();
  come_back(stream);
  EXPECT_EQ(welcomed, stream);
  EXPECT_GE(proxy.connections(), 2);
}

TEST_F(ControlLinkTest, ItsEndWaitsForACallbackAndNoneComesAfterIt) {
  patience_ = absl::Milliseconds(1);
  Gate welcomed;
  auto link = Link([&](int64_t, const control::v1::WorkerCommand&) { welcomed.Pass(); });
  Greet(link.get());
  ASSERT_TRUE(welcomed.AwaitOne());
  std::atomic<bool> ended{false};
  std::thread end([&] {
    link.reset();
    ended = true;
  });
  const absl::Time soon = SteadyNow() + absl::Milliseconds(200);
  while (!ended && SteadyNow() < soon) std::this_thread::yield();
  EXPECT_FALSE(ended);
  welcomed.Open();
  end.join();
  const int closed = closed_;  // It may have come before the end continued.
  const absl::Time late = SteadyNow() + absl::Seconds(20);
  while (!callbacks_.expired() && SteadyNow() < late) std::this_thread::yield();
  EXPECT_TRUE(callbacks_.expired()) << "gRPC has not let go of the stream";
  EXPECT_EQ(closed_, closed);
}

}  // namespace
}  // namespace annulus

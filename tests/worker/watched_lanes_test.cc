#include "worker/watched_lanes.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "absl/time/clock.h"
#include "base/steady_time.h"
#include "tests/base/gate.h"

namespace annulus {
namespace {

constexpr absl::Duration kStall = absl::Seconds(60);

class WatchedAgentTest : public testing::Test {
 protected:
  std::unique_ptr<Agent> MakeAgent(std::function<void()> housekeeping) {
    Agent::Options options;
    options.state.self = [] { return control::v1::Register(); };
    options.state.new_identity = [] { return Identity{"incarnation", "key"}; };
    options.state.link.random = [] { return 0.0; };
    options.now = SteadyNow;
    options.perform = [](const AgentAction&) {};
    options.housekeeping = std::move(housekeeping);
    options.housekeeping_interval = absl::Milliseconds(1);
    return std::make_unique<Agent>(std::move(options));
  }
  // The agent's record if it is that much later.
  std::optional<std::string> LookLater(Agent* agent, absl::Duration later) {
    now_ += later;
    return detector_.Look(WatchedLanes(nullptr, nullptr, agent).back()(), now_);
  }

  StuckDetector detector_{{kStall, absl::Seconds(10)}};
  absl::Time now_ = absl::UnixEpoch();
};

TEST_F(WatchedAgentTest, AnAgentThatHangsIsStuck) {
  Gate gate;
  const auto agent = MakeAgent([&] { gate.Pass(); });
  const absl::Cleanup go_on = [&] { gate.Open(); };
  agent->Start();
  ASSERT_TRUE(gate.AwaitOne());
  EXPECT_FALSE(LookLater(agent.get(), absl::ZeroDuration()).has_value());
  EXPECT_FALSE(LookLater(agent.get(), kStall).has_value()) << "a turn is no step";
  const auto record = LookLater(agent.get(), absl::Seconds(10));
  ASSERT_TRUE(record.has_value());
  EXPECT_NE(record->find("agent lane"), std::string::npos) << *record;
}

TEST_F(WatchedAgentTest, AnAgentWithNothingToDoIsNot) {
  const auto agent = MakeAgent([] {});
  agent->Start();
  const absl::Time deadline = SteadyNow() + absl::Seconds(20);
  for (int look = 0; look < 5; ++look) {
    EXPECT_FALSE(LookLater(agent.get(), absl::Hours(1)).has_value());
    const int64_t turns = agent->turns();
    while (agent->turns() == turns && SteadyNow() < deadline) std::this_thread::yield();
  }
  EXPECT_LT(SteadyNow(), deadline) << "it has no turns";
}

}  // namespace
}  // namespace annulus

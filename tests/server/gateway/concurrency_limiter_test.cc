#include "server/gateway/concurrency_limiter.h"

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

TEST(CallGateTest, LetsInSoManyAndNoMore) {
  ConcurrencyLimiter gate(2);
  auto first = gate.Enter(), second = gate.Enter();
  ASSERT_TRUE(first.ok() && second.ok());
  const absl::Status refused = gate.Enter().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(DetailOf(refused).reason, "TOO_MANY_CALLS");
  EXPECT_TRUE(DetailOf(refused).retry_after.has_value());
  first->reset();
  EXPECT_TRUE(gate.Enter().ok());
}

TEST(CallGateTest, WaitsForTheLast) {
  auto gate = std::make_unique<ConcurrencyLimiter>(8);
  EXPECT_TRUE(gate->WaitUntilEmpty(absl::InfinitePast()));
  std::vector<std::shared_ptr<void>> places;
  for (int i = 0; i < 8; ++i) places.push_back(*gate->Enter());
  EXPECT_FALSE(gate->WaitUntilEmpty(absl::InfinitePast()));
  std::thread leaves([&] { places.clear(); });
  EXPECT_TRUE(gate->WaitUntilEmpty(absl::InfiniteFuture()));
  leaves.join();
  const std::shared_ptr<void> late = *gate->Enter();
  gate.reset();  // Callers inside may outlive it.
}

TEST(CallGateTest, WhoLeavesHasNoPlaceAndIsWaitedFor) {
  ConcurrencyLimiter gate(1);
  std::shared_ptr<void> place = *gate.Enter();
  std::shared_ptr<void> leaving = gate.Leave(std::move(place));
  EXPECT_TRUE(gate.Enter().ok());
  EXPECT_FALSE(gate.WaitUntilEmpty(absl::InfinitePast()));
  leaving.reset();
  EXPECT_TRUE(gate.WaitUntilEmpty(absl::InfinitePast()));
  EXPECT_EQ(gate.Leave(nullptr), nullptr);
}

}  // namespace
}  // namespace annulus

#include "server/gateway/call_gate.h"

#include <memory>
#include <thread>
#include <vector>

#include "attention/error.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

TEST(CallGateTest, LetsInSoManyAndNoMore) {
  CallGate gate(2);
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
  auto gate = std::make_unique<CallGate>(8);
  EXPECT_TRUE(gate->WaitUntilEmpty(absl::InfinitePast()));
  std::vector<std::shared_ptr<void>> places;
  for (int i = 0; i < 8; ++i) places.push_back(*gate->Enter());
  EXPECT_FALSE(gate->WaitUntilEmpty(absl::InfinitePast()));
  std::thread leaves([&] { places.clear(); });
  EXPECT_TRUE(gate->WaitUntilEmpty(absl::InfiniteFuture()));
  leaves.join();
  const std::shared_ptr<void> late = *gate->Enter();
  gate.reset();  // Whoever is inside may outlive it.
}

}  // namespace
}  // namespace annulus

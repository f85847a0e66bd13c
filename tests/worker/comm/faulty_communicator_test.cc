#include "tests/worker/comm/faulty_communicator.h"

#include <vector>

#include "base/steady_time.h"
#include "tests/worker/comm/communicator_conformance.h"

namespace annulus {
namespace {

Group FaultyGroup(int32_t size, const Faults& faults) {
  Group group = InProcessGroup(size, absl::ZeroDuration(), 0);
  for (auto& comm : group) comm = std::make_unique<FaultyCommunicator>(std::move(comm), faults);
  return group;
}

Faults ShortDelay() {
  Faults faults;
  faults.delay = absl::Microseconds(50);
  return faults;
}

INSTANTIATE_TEST_SUITE_P(Faulty, CommunicatorConformance,
                         testing::Values(ConformanceCase{
                             "3", [](int32_t n) { return FaultyGroup(n, ShortDelay()); }, 3}),
                         ConformanceName);

const FaultyCommunicator& Faulty(const Communicator& communicator) {
  return static_cast<const FaultyCommunicator&>(communicator);
}

TEST(FaultyCommunicator, ASlowLinkTakesItsTime) {
  Faults faults;
  faults.bytes_per_second = 1e6;
  Group group = ConnectedGroup([&](int32_t n) { return FaultyGroup(n, faults); }, 2);
  std::vector<std::byte> in(50000), out(50000);
  const absl::Time start = SteadyNow();
  ASSERT_TRUE(group[0]->Start({SendMessage{1, out.data(), 50000}}, {}).ok());
  ASSERT_TRUE(group[1]->Start({}, {ReceiveMessage{0, in.data(), 50000}}).ok());
  EXPECT_TRUE(group[0]->Join(TestDeadline()).ok());
  EXPECT_TRUE(group[1]->Join(TestDeadline()).ok());
  EXPECT_GE(SteadyNow() - start, absl::Milliseconds(50));
  EXPECT_EQ(Faulty(*group[1]).throttled_bytes(), 50000);
  EXPECT_EQ(Faulty(*group[1]).delayed(), 1);
}

TEST(FaultyCommunicator, TheDeadlineHolds) {
  Faults faults;
  faults.delay = absl::Hours(1);
  Group group = ConnectedGroup([&](int32_t n) { return FaultyGroup(n, faults); }, 2);
  std::vector<std::byte> in(1), out(1);
  ASSERT_TRUE(group[0]->Start({SendMessage{1, out.data(), 1}}, {}).ok());
  ASSERT_TRUE(group[1]->Start({}, {ReceiveMessage{0, in.data(), 1}}).ok());
  EXPECT_EQ(group[1]->Join(SteadyNow() + absl::Milliseconds(20)).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Faulty(*group[1]).delayed(), 1);
}

TEST(FaultyCommunicator, FailsAtTheMessageAskedFor) {
  Faults faults;
  faults.fail_at_message = 3;
  Group group = ConnectedGroup([&](int32_t n) { return FaultyGroup(n, faults); }, 2);
  std::byte out[3] = {}, in[3] = {};
  ASSERT_TRUE(group[1]->Start({}, {ReceiveMessage{0, in, 1}, ReceiveMessage{0, in + 1, 1}}).ok());
  ASSERT_TRUE(group[0]->Start({SendMessage{1, out, 1}, SendMessage{1, out + 1, 1}}, {}).ok());
  EXPECT_TRUE(group[0]->Join(TestDeadline()).ok());
  EXPECT_TRUE(group[1]->Join(TestDeadline()).ok());
  EXPECT_EQ(group[0]->Start({SendMessage{1, out + 2, 1}}, {}).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(Faulty(*group[0]).failed(), 1);
  EXPECT_EQ(group[1]->Start({}, {ReceiveMessage{0, in + 2, 1}}).code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace annulus

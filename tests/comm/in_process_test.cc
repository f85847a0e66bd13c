#include "worker/comm/in_process.h"

#include "tests/comm/communicator_conformance.h"

namespace annulus {
namespace {

INSTANTIATE_TEST_SUITE_P(InProcess, CommunicatorConformance, ConformanceCases([](int32_t size) {
                           return InProcessGroup(size, absl::ZeroDuration(), 0);
                         }),
                         ConformanceName);

INSTANTIATE_TEST_SUITE_P(InProcessDelayed, CommunicatorConformance,
                         ConformanceCases([](int32_t size) {
                           return InProcessGroup(size, absl::Microseconds(200), 17);
                         }),
                         ConformanceName);

TEST(InProcess, SizesThatDisagreeFailOnBothSides) {
  Group group =
      ConnectedGroup([](int32_t size) { return InProcessGroup(size, absl::ZeroDuration(), 0); }, 2);
  std::byte in[8] = {}, out[8] = {};
  ASSERT_TRUE(group[0]->Start({SendMessage{1, out, 8}}, {}).ok());
  ASSERT_TRUE(group[1]->Start({}, {ReceiveMessage{0, in, 7}}).ok());
  EXPECT_EQ(group[0]->Join(TestDeadline()).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(group[1]->Join(TestDeadline()).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace annulus

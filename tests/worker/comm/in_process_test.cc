#include "tests/worker/comm/in_process.h"

#include <memory>
#include <string>

#include "base/error.h"
#include "tests/worker/comm/communicator_conformance.h"
#include "worker/device/device.h"

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

// Its device fails during an abort.
class AbortedMover final : public MessageMover {
 public:
  absl::Status BeginStep(int32_t) override {
    aborts->Abort();
    return MakeError(absl::StatusCode::kInternal, "a fault",
                     {std::string(kReasonDeviceFault), {}, {}, {}});
  }
  absl::Status Move(int32_t, int32_t, const std::byte*, std::byte*, int64_t) override {
    return absl::OkStatus();
  }

  Communicator* aborts = nullptr;
};

TEST(InProcess, AnAbortDoesNotHideAFaultOfTheDevice) {
  auto mover = std::make_shared<AbortedMover>();
  const Group group = ConnectedGroup(
      [&](int32_t size) {
        InProcessHub::Options options;
        options.size = size;
        options.mover = mover;
        InProcessHub hub(options);
        Group made;
        for (int32_t rank = 0; rank < size; ++rank) made.push_back(hub.MakeCommunicator(rank));
        return made;
      },
      2);
  mover->aborts = group[0].get();
  EXPECT_EQ(DetailOf(group[0]->Start({}, {})).reason, kReasonDeviceFault);
}

}  // namespace
}  // namespace annulus

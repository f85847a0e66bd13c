#include "worker/comm/gloo.h"

#include "tests/worker/comm/communicator_conformance.h"

namespace annulus {
namespace {

INSTANTIATE_TEST_SUITE_P(Gloo, CommunicatorConformance,
                         ConformanceCases(GlooGroup, GlooGroupThatGivesUpSoon), ConformanceName);

GlooOptions Loopback() {
  GlooOptions options;
  options.size = 2;
  options.host = "127.0.0.1";
  return options;
}

TEST(Gloo, BadOptionsAreRefused) {
  GlooOptions options = Loopback();
  options.rank = 2;
  EXPECT_EQ(MakeGlooCommunicator(options).status().code(), absl::StatusCode::kInvalidArgument);
  options = Loopback();
  options.interface = "lo";
  EXPECT_EQ(MakeGlooCommunicator(options).status().code(), absl::StatusCode::kInvalidArgument);
  options = Loopback();
  options.host = "";
  EXPECT_EQ(MakeGlooCommunicator(options).status().code(), absl::StatusCode::kInvalidArgument);
  options = Loopback();
  options.host = "no such host";
  EXPECT_EQ(MakeGlooCommunicator(options).status().code(), absl::StatusCode::kInvalidArgument);
  options.host = "0.0.0.0";
  EXPECT_EQ(MakeGlooCommunicator(options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Gloo, AnAddressOfAnotherMachineCannotBeBound) {
  GlooOptions options = Loopback();
  options.host = "192.0.2.1";  // An address reserved for documentation.
  EXPECT_EQ(MakeGlooCommunicator(options).status().code(), absl::StatusCode::kUnavailable);
  options = Loopback();
  options.host = "";
  options.interface = "no-such0";
  EXPECT_EQ(MakeGlooCommunicator(options).status().code(), absl::StatusCode::kUnavailable);
}

TEST(Gloo, BindsToAnInterface) {
  const Group group = ConnectedGroup(
      [](int32_t size) {
        Group made;
        for (int32_t r = 0; r < size; ++r) {
          GlooOptions options = Loopback();
          options.host = "";
          options.interface = "lo";
          options.rank = r;
          options.size = size;
          made.push_back(*MakeGlooCommunicator(options));
        }
        return made;
      },
      2);
  EXPECT_EQ(group.size(), 2u);
}

TEST(Gloo, AGroupOfOneConnects) {
  GlooOptions options = Loopback();
  options.size = 1;
  auto alone = MakeGlooCommunicator(options);
  ASSERT_TRUE(alone.ok()) << alone.status();
  const auto bytes = (*alone)->Bootstrap();
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_TRUE((*alone)->Connect({*bytes}, TestDeadline()).ok());
  EXPECT_TRUE((*alone)->Start({}, {}).ok());
  EXPECT_TRUE((*alone)->Join(TestDeadline()).ok());
}

}  // namespace
}  // namespace annulus

#include "client/cli/plain_message.h"

#include "gtest/gtest.h"

namespace annulus {
namespace {

TEST(PlainMessageTest, SaysWhereNobodyListens) {
  EXPECT_EQ(PlainMessage(absl::UnavailableError(
                "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:8001: "
                "Failed to connect to remote host: Connection refused (attempt 4)")),
            "no Annulus at 127.0.0.1:8001: Connection refused (attempt 4)");
  EXPECT_EQ(PlainMessage(absl::UnavailableError(
                "failed to connect to all addresses; last error: UNAVAILABLE: ipv6:[::1]:8001: "
                "Failed to connect to remote host: No route to host")),
            "no Annulus at [::1]:8001: No route to host");
  EXPECT_EQ(PlainMessage(absl::UnavailableError(
                "failed to connect to all addresses; last error: UNKNOWN: something else")),
            "cannot connect: something else");
}

TEST(PlainMessageTest, SaysWhoseNameIsNotKnown) {
  EXPECT_EQ(PlainMessage(absl::UnavailableError(
                "DNS resolution failed for nosuch.invalid:8001: C-ares status is not ARES_SUCCESS "
                "qtype=A name=nosuch.invalid is_balancer=0: Domain name not found (attempt 2)")),
            "cannot find the host of nosuch.invalid:8001: Domain name not found (attempt 2)");
  EXPECT_EQ(PlainMessage(absl::UnavailableError("DNS resolution failed for nosuch")),
            "cannot find the host of nosuch");
}

TEST(PlainMessageTest, SaysSomethingWhereOthersDoNot) {
  EXPECT_EQ(PlainMessage(absl::DeadlineExceededError("Deadline Exceeded")),
            "no answer came in time");
  EXPECT_EQ(PlainMessage(absl::InternalError("")), "the server gave no message");
  EXPECT_NE(PlainMessage(absl::UnimplementedError("")).find("check that --address is"),
            std::string::npos);
  EXPECT_EQ(PlainMessage(absl::UnimplementedError("Received http2 header with status: 404")),
            "this address is an HTTP server, not Annulus (Received http2 header with status: 404)");
  EXPECT_EQ(PlainMessage(absl::InternalError("a fault")), "a fault");
}

}  // namespace
}  // namespace annulus

#include "proto/wire/ticket.h"

#include <string>

#include "base/error.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1000);
const std::string kKey(kTicketKeyBytes, 'k');

TicketClaims Claims() {
  return {"job-1", 2, 3, "incarnation", "anonymous", 100, kNow + absl::Seconds(5)};
}

TEST(TicketTest, TheSignerKeyOpensIt) {
  absl::StatusOr<TicketClaims> claims = VerifyTicket(kKey, SignTicket(kKey, Claims()), kNow);
  ASSERT_TRUE(claims.ok()) << claims.status();
  EXPECT_EQ(claims->job_id, "job-1");
  EXPECT_EQ(claims->attempt, 2);
  EXPECT_EQ(claims->rank, 3);
  EXPECT_EQ(claims->incarnation, "incarnation");
  EXPECT_EQ(claims->principal, "anonymous");
  EXPECT_EQ(claims->input_bytes, 100);
  EXPECT_EQ(claims->expiry, Claims().expiry);
}

TEST(TicketTest, AnotherKeyDoesNot) {
  const absl::Status status =
      VerifyTicket(std::string(kTicketKeyBytes, 'x'), SignTicket(kKey, Claims()), kNow).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(DetailOf(status).reason, "BAD_TICKET");
}

TEST(TicketTest, AnEmptyKeySignsNothing) {
  EXPECT_EQ(DetailOf(VerifyTicket("", SignTicket("", Claims()), kNow).status()).reason,
            "BAD_TICKET");
}

TEST(TicketTest, AnyFlippedBitIsRefused) {
  const std::string ticket = SignTicket(kKey, Claims());
  for (size_t bit = 0; bit < ticket.size() * 8; ++bit) {
    std::string damaged = ticket;
    damaged[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    EXPECT_FALSE(VerifyTicket(kKey, damaged, kNow).ok()) << "bit " << bit;
  }
  EXPECT_FALSE(VerifyTicket(kKey, "", kNow).ok());
  EXPECT_FALSE(VerifyTicket(kKey, std::string(5000, 'a'), kNow).ok());
}

TEST(TicketTest, ItExpires) {
  const std::string ticket = SignTicket(kKey, Claims());
  EXPECT_TRUE(VerifyTicket(kKey, ticket, Claims().expiry).ok());
  const absl::Status status =
      VerifyTicket(kKey, ticket, Claims().expiry + absl::Milliseconds(1)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(DetailOf(status).reason, "TICKET_EXPIRED");
}

}  // namespace
}  // namespace annulus

#include "client/cli/local/await_workers.h"

#include <vector>

#include "absl/time/time.h"
#include "base/error.h"
#include "gtest/gtest.h"

namespace annulus {
namespace {

// A scripted coordinator: each answer comes after its delay; the last one repeats.
class AwaitWorkersTest : public testing::Test {
 protected:
  struct Answer {
    absl::StatusOr<v1::ServerInfo> info;
    absl::Duration after;
  };

  static absl::StatusOr<v1::ServerInfo> Workers(int ready) {
    v1::ServerInfo info;
    info.add_workers()->set_state(v1::WorkerInfo::STATE_DRAINING);
    for (int i = 0; i < ready; ++i) info.add_workers()->set_state(v1::WorkerInfo::STATE_READY);
    return info;
  }
  absl::StatusOr<v1::ServerInfo> Await(int64_t wanted, absl::Duration timeout,
                                       const std::vector<Answer>& answers) {
    AwaitContext context;
    context.now = [this] { return now_; };
    context.sleep = [this](absl::Duration time) { now_ += time; };
    context.ask = [&](absl::Duration limit) -> absl::StatusOr<v1::ServerInfo> {
      const Answer& answer = answers[std::min<size_t>(calls_++, answers.size() - 1)];
      now_ += std::min(limit, answer.after);
      if (answer.after > limit) return absl::DeadlineExceededError("no answer");
      return answer.info;
    };
    return AwaitWorkers(wanted, timeout, context);
  }

  absl::Time now_ = absl::UnixEpoch();
  size_t calls_ = 0;
};

TEST_F(AwaitWorkersTest, GoesOnThroughSilenceAndAbsence) {
  const auto info = Await(2, absl::Minutes(1),
                          {{absl::UnavailableError("x"), absl::ZeroDuration()},
                           {Workers(9), absl::Hours(1)},  // Accepts the call and does not answer.
                           {Workers(1), absl::ZeroDuration()},
                           {Workers(2), absl::ZeroDuration()}});
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(ReadyWorkers(*info), 2);
  EXPECT_EQ(calls_, 4u);
}

TEST_F(AwaitWorkersTest, EndsWithItsTimeAndTheLastWord) {
  absl::Status status = Await(3, absl::Seconds(25), {{Workers(2), absl::Seconds(1)}}).status();
  EXPECT_EQ(DetailOf(status).reason, "NO_WORKERS");
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_LE(now_, absl::UnixEpoch() + absl::Seconds(26));
  now_ = absl::UnixEpoch();
  status = Await(3, absl::Seconds(25), {{Workers(3), absl::Hours(1)}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_GE(now_, absl::UnixEpoch() + absl::Seconds(25));
}

TEST_F(AwaitWorkersTest, OtherErrorsEndItAndNoWishIsOneCall) {
  const Answer denied = {absl::PermissionDeniedError("x"), absl::ZeroDuration()};
  EXPECT_EQ(Await(1, absl::Minutes(1), {denied}).status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(calls_, 1u);
  EXPECT_FALSE(Await(0, absl::Minutes(1), {{Workers(3), absl::Hours(1)}}).ok());
  EXPECT_EQ(calls_, 2u);
}

}  // namespace
}  // namespace annulus

// AttendMany calls with and without a current job.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/steady_time.h"
#include "tests/server/gateway/many_call.h"

namespace annulus {
namespace {

TEST_F(AttendManyTest, ACallWithoutAJobHasNoPlaceAndEndsInTime) {
  GatewayServiceOptions options;
  options.first_message_wait = absl::Milliseconds(300);
  Serve({Act::kServe}, std::move(options));
  ManyCall none(stub_.get()), one(stub_.get());
  ASSERT_EQ(one.AnswerTo(Whole(ClientJob(20))), "ACD");
  EXPECT_TRUE(one.End().ok());
  // The expected job may have been in transit all that time.
  const absl::Status status = none.End();
  EXPECT_EQ(DetailOf(status).reason, "STREAM_SEQUENCE") << status;
  EXPECT_TRUE(gateway_->WaitUntilIdle(SteadyNow()));
}

TEST_F(AttendManyTest, AJobMayTakeLongerThanACallWaitsForOne) {
  GatewayServiceOptions options;
  options.first_message_wait = absl::Milliseconds(300);
  predicted_ = absl::Milliseconds(1);
  behind_ = std::make_unique<FakeService>(Script({Act::kUploadsCut, Act::kServe}));
  Start(std::move(options));
  ManyCall call(stub_.get());
  ASSERT_TRUE(call.stream->Write(Whole(ClientJob(20))));
  EXPECT_TRUE(AwaitACall());
  EXPECT_FALSE(gateway_->WaitUntilIdle(SteadyNow() + absl::Milliseconds(500)));
  behind_->SendOutputs();
  EXPECT_EQ(call.Answer().back(), 'D');
  EXPECT_EQ(call.AnswerTo(Whole(ClientJob(20))).back(), 'D');
}

TEST_F(AttendManyTest, TheLongestWithoutAJobMakesRoom) {
  GatewayServiceOptions options = Patient();
  options.max_resting_calls = 1;
  Serve({Act::kServe}, std::move(options));
  ManyCall first(stub_.get());
  EXPECT_EQ(first.AnswerTo(Whole(ClientJob(20))), "ACD");
  ManyCall second(stub_.get());
  EXPECT_EQ(second.AnswerTo(Whole(ClientJob(20))), "ACD");
  EXPECT_TRUE(first.End().ok());
  EXPECT_EQ(second.AnswerTo(Whole(ClientJob(20))), "ACD");
}

TEST_F(AttendManyTest, WhoMakesRoomBeforeItsFirstJobIsToldSo) {
  GatewayServiceOptions options = Patient();
  options.max_resting_calls = 1;
  Serve({Act::kServe}, std::move(options));
  ManyCall first(stub_.get()), second(stub_.get());
  // Either may come first.
  v1::AttendResponse response;
  const std::string answer = second.AnswerTo(Whole(ClientJob(20)));
  ManyCall& sent_away = answer == "ACD" ? first : second;
  const absl::Status status = sent_away.End();
  EXPECT_EQ(DetailOf(status).reason, "TOO_MANY_CALLS") << status;
  EXPECT_TRUE(DetailOf(status).retry_after.has_value()) << status;
}

TEST_F(AttendManyTest, NobodyRestsWhereThereIsNoRoom) {
  GatewayServiceOptions options = Patient();
  options.max_resting_calls = 0;
  Serve({Act::kServe}, std::move(options));
  EXPECT_EQ(DetailOf(ManyCall(stub_.get()).End()).reason, "TOO_MANY_CALLS");
}

TEST_F(AttendManyTest, WithoutAJobTheyEndWithTheService) {
  Serve({Act::kServe});
  ManyCall first(stub_.get());
  EXPECT_EQ(first.AnswerTo(Whole(ClientJob(20))), "ACD");
  gateway_->EndResting();
  EXPECT_TRUE(first.End().ok());
  ManyCall late(stub_.get());
  EXPECT_TRUE(late.End().ok());
}

class AtWorkTest : public AttendManyTest {
 protected:
  // A call whose job was accepted and waits for SendOutputs.
  std::unique_ptr<ManyCall> StartOne() {
    GatewayServiceOptions options = Patient();
    options.max_resting_calls = 1;
    options.small_answer_wait = absl::Milliseconds(1);
    predicted_ = absl::Milliseconds(1);
    behind_ = std::make_unique<FakeService>(Script({Act::kUploadsCut}));
    Start(std::move(options));
    auto call = std::make_unique<ManyCall>(stub_.get());
    EXPECT_TRUE(call->stream->Write(Whole(ClientJob(20))));
    v1::AttendResponse response;
    EXPECT_TRUE(call->stream->Read(&response));
    EXPECT_TRUE(response.has_accepted());
    return call;
  }
};

TEST_F(AtWorkTest, ACallMakesNoRoomForOthers) {
  const auto at_work = StartOne();
  ManyCall other(stub_.get());
  ASSERT_TRUE(other.stream->WritesDone());
  EXPECT_TRUE(other.End().ok());  // The call has waited for a job before.
  behind_->SendOutputs();
  EXPECT_EQ(at_work->Answer().back(), 'D');
}

TEST_F(AtWorkTest, ACallGoesOnWhereTheServiceEnds) {
  const auto at_work = StartOne();
  gateway_->EndResting();
  behind_->SendOutputs();
  EXPECT_EQ(at_work->Answer().back(), 'D');
  EXPECT_TRUE(at_work->End().ok());
}

// An answer has been read when the next job comes, so its time limit is over.
TEST_F(AttendManyTest, ACallMayRestLongerThanAnAnswerWaits) {
  GatewayServiceOptions options;
  options.first_message_wait = absl::Milliseconds(400);
  options.answer_patience = absl::Milliseconds(50);
  Serve({Act::kServe}, std::move(options));
  ManyCall call(stub_.get());
  EXPECT_EQ(call.AnswerTo(Whole(ClientJob(20))), "ACD");
  // The call rests until it ends by itself with OK.
  EXPECT_TRUE(call.End().ok());
}

}  // namespace
}  // namespace annulus

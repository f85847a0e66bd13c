#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "tests/server/gateway/gateway_case.h"

namespace annulus {
namespace {

constexpr absl::Duration kLong = absl::Minutes(10);

// Writes a message as A if it reports that the job was accepted, C for each of its chunks, and D if
// it reports the end.
class AnswerTest : public GatewayCallTest {
 protected:
  // Messages delayed until the end of a small job are delayed for `wait`.
  void StartWith(absl::Duration wait) {
    GatewayServiceOptions options;
    options.small_answer_wait = wait;
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    Start(std::move(options));
  }
  // The answer to a job that is sent whole and succeeds.
  std::vector<std::string> AnswerTo(const ClientJob& job) {
    StartWith(kLong);
    Send(job);
    absl::Status status;
    const std::vector<std::string> messages = Answer(&status);
    EXPECT_TRUE(status.ok()) << status;
    return messages;
  }
  std::vector<std::string> Answer(absl::Status* status) {
    std::vector<std::string> messages;
    v1::AttendResponse response;
    while (call_->Read(&response)) {
      std::string& message = messages.emplace_back(response.has_accepted() ? "A" : "");
      message += std::string(response.chunks_size(), 'C') + (response.has_done() ? "D" : "");
    }
    *status = FromGrpcStatus(call_->Finish());
    return messages;
  }
};

TEST_F(AnswerTest, OfAShortJobThatCameWholeIsOneMessage) {
  predicted_ = absl::Milliseconds(1);
  const std::vector<std::string> messages = AnswerTo(ClientJob(20));
  ASSERT_EQ(messages.size(), 1u) << absl::StrJoin(messages, " ");
  EXPECT_EQ(messages[0].front(), 'A');
  EXPECT_EQ(messages[0].back(), 'D');
  EXPECT_GT(messages[0].size(), 2u);
}

TEST_F(AnswerTest, OfALongJobComesAsItIsReady) {
  const std::vector<std::string> messages = AnswerTo(ClientJob(20));
  ASSERT_GT(messages.size(), 2u);
  EXPECT_EQ(messages.front(), "A");
  EXPECT_EQ(messages.back(), "D");
}

// Together with outputs it might exceed the caller's limit.
TEST_F(AnswerTest, OfAJobWithALongPlanIsSeveral) {
  predicted_ = absl::Milliseconds(1);
  reason_ = std::string(64 << 10, 'x');
  const std::vector<std::string> messages = AnswerTo(ClientJob(20));
  ASSERT_GT(messages.size(), 2u);
  EXPECT_EQ(messages.front(), "A");
}

// Its outputs are not complete yet.
TEST_F(AnswerTest, OfAShortJobThatWaitsSaysThatItWasAccepted) {
  predicted_ = absl::Milliseconds(1);
  behind_ = std::make_unique<FakeService>(Script({FakeService::Act::kUploadsCut}));
  StartWith(absl::Milliseconds(10));
  Send(ClientJob(20));
  v1::AttendResponse response;
  ASSERT_TRUE(call_->Read(&response));
  EXPECT_TRUE(response.has_accepted());
  EXPECT_FALSE(response.has_done());
  behind_->SendOutputs();
  absl::Status status;
  const std::vector<std::string> messages = Answer(&status);
  EXPECT_TRUE(status.ok()) << status;
  ASSERT_FALSE(messages.empty());
  EXPECT_EQ(messages.back().back(), 'D');
}

// The caller may wait for the message that the job was accepted.
TEST_F(AnswerTest, OfAJobWhoseInputsFollowBeginsWithTheWordThatItWasAccepted) {
  predicted_ = absl::Milliseconds(1);
  StartWith(kLong);
  v1::AttendRequest start = Whole(ClientJob(20)), rest;
  rest.mutable_chunks()->Swap(start.mutable_chunks());
  start.add_chunks()->Swap(rest.mutable_chunks(0));
  rest.mutable_chunks()->DeleteSubrange(0, 1);
  ASSERT_TRUE(call_->Write(start));
  v1::AttendResponse response;
  ASSERT_TRUE(call_->Read(&response));
  EXPECT_TRUE(response.has_accepted());
  ASSERT_TRUE(call_->Write(rest));
  ASSERT_TRUE(call_->WritesDone());
  absl::Status status;
  const std::vector<std::string> messages = Answer(&status);
  EXPECT_TRUE(status.ok()) << status;
  ASSERT_FALSE(messages.empty());
  EXPECT_EQ(messages.back(), "D");
}

// More chunks than fit into a message: delayed messages are sent before the end.
TEST_F(AnswerTest, OfMoreChunksThanAMessageTakesIsSeveral) {
  predicted_ = absl::Milliseconds(1);
  const std::vector<std::string> messages = AnswerTo(ClientJob(1500));
  ASSERT_GT(messages.size(), 1u);
  EXPECT_EQ(messages.front().front(), 'A');
  EXPECT_EQ(messages.back().back(), 'D');
  std::string all = absl::StrJoin(messages, "");
  EXPECT_EQ(std::count(all.begin(), all.end(), 'A'), 1);
  EXPECT_EQ(std::count(all.begin(), all.end(), 'D'), 1);
}

TEST_F(AnswerTest, OfAShortJobThatFailsSaysWhichJobItWas) {
  predicted_ = absl::Milliseconds(1);
  behind_ = std::make_unique<FakeService>(Script({FakeService::Act::kGroupLost}));
  StartWith(kLong);
  Send(ClientJob(20));
  absl::Status status;
  const std::vector<std::string> messages = Answer(&status);
  EXPECT_EQ(DetailOf(status).reason, "GROUP_LOST") << status;
  EXPECT_EQ(messages, std::vector<std::string>{"A"});
}

}  // namespace
}  // namespace annulus

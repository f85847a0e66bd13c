#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "tests/server/gateway/gateway_case.h"

namespace annulus {
namespace {

// A message is written as A, where it says that the job was accepted, C for each of its chunks, and
// D, where it says that it is done.
class AnswerTest : public GatewayCallTest {
 protected:
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
  Start({});
  const ClientJob job(20);
  Send(job);
  absl::Status status;
  const std::vector<std::string> messages = Answer(&status);
  EXPECT_TRUE(status.ok()) << status;
  ASSERT_EQ(messages.size(), 1u) << absl::StrJoin(messages, " ");
  EXPECT_EQ(messages[0].front(), 'A');
  EXPECT_EQ(messages[0].back(), 'D');
  EXPECT_GT(messages[0].size(), 2u);
}

TEST_F(AnswerTest, OfALongJobComesAsItIsReady) {
  Start({});
  Send(ClientJob(20));
  absl::Status status;
  const std::vector<std::string> messages = Answer(&status);
  EXPECT_TRUE(status.ok()) << status;
  ASSERT_GT(messages.size(), 2u);
  EXPECT_EQ(messages.front(), "A");
  EXPECT_EQ(messages.back(), "D");
}

// Together with outputs it might be more than the caller takes.
TEST_F(AnswerTest, OfAJobWithALongPlanIsSeveral) {
  predicted_ = absl::Milliseconds(1);
  reason_ = std::string(64 << 10, 'x');
  Start({});
  Send(ClientJob(20));
  absl::Status status;
  const std::vector<std::string> messages = Answer(&status);
  EXPECT_TRUE(status.ok()) << status;
  ASSERT_GT(messages.size(), 2u);
  EXPECT_EQ(messages.front(), "A");
}

// Its outputs do not come.
TEST_F(AnswerTest, OfAShortJobThatWaitsSaysThatItWasAccepted) {
  predicted_ = absl::Milliseconds(1);
  behind_ = std::make_unique<FakeService>(Script({FakeService::Act::kUploadsCut}));
  Start({});
  Send(ClientJob(20));
  v1::AttendResponse response;
  ASSERT_TRUE(call_->Read(&response));
  EXPECT_TRUE(response.has_accepted());
  EXPECT_FALSE(response.has_done());
}

// The caller may be waiting for the word that the job was accepted.
TEST_F(AnswerTest, OfAJobWhoseInputsFollowBeginsWithTheWordThatItWasAccepted) {
  predicted_ = absl::Milliseconds(1);
  Start({});
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

// More than a message takes: what waits for the end goes out before it.
TEST_F(AnswerTest, OfMoreChunksThanAMessageTakesIsSeveral) {
  predicted_ = absl::Milliseconds(1);
  Start({});
  Send(ClientJob(1500));
  absl::Status status;
  const std::vector<std::string> messages = Answer(&status);
  EXPECT_TRUE(status.ok()) << status;
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
  Start({});
  Send(ClientJob(20));
  absl::Status status;
  const std::vector<std::string> messages = Answer(&status);
  EXPECT_EQ(DetailOf(status).reason, "GROUP_LOST") << status;
  EXPECT_EQ(messages, std::vector<std::string>{"A"});
}

}  // namespace
}  // namespace annulus

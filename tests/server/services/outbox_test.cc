#include "server/services/outbox.h"

#include <string>

#include "gtest/gtest.h"

namespace annulus {
namespace {

struct Message {
  std::string text;
  size_t ByteSizeLong() const { return text.size(); }
};
using Box = Outbox<Message>;

TEST(OutboxTest, OneWriteAtATimeInOrderThenTheEnd) {
  Box box(10, 100);
  bool overflow = false;
  EXPECT_EQ(box.Push({"a"}, &overflow), Box::Start::kWrite);
  EXPECT_EQ(box.Push({"b"}, &overflow), Box::Start::kNothing);
  EXPECT_EQ(box.End(absl::OkStatus(), Box::Flush::kYes), Box::Start::kNothing);
  EXPECT_EQ(box.front().text, "a");
  EXPECT_EQ(box.Written(true), Box::Start::kWriteAndFinish);
  EXPECT_EQ(box.front().text, "b");
  EXPECT_TRUE(box.end().ok());
  EXPECT_EQ(box.Push({"c"}, &overflow), Box::Start::kNothing);
  EXPECT_EQ(box.End(absl::OkStatus(), Box::Flush::kYes), Box::Start::kNothing)
      << "the end comes once";
}

TEST(OutboxTest, TheLastMessageTakesAGoodEndAlong) {
  Box box(10, 100);
  bool overflow = false;
  EXPECT_EQ(box.PushLast({"a"}, &overflow), Box::Start::kWriteAndFinish);
  EXPECT_EQ(box.front().text, "a");
  EXPECT_EQ(box.End(absl::CancelledError(""), Box::Flush::kNo), Box::Start::kNothing);
  EXPECT_TRUE(box.end().ok()) << "the first end counts";
  Box busy(10, 100);
  EXPECT_EQ(busy.Push({"a"}, &overflow), Box::Start::kWrite);
  EXPECT_EQ(busy.PushLast({"b"}, &overflow), Box::Start::kNothing);
  EXPECT_EQ(busy.Written(true), Box::Start::kWriteAndFinish);
  EXPECT_EQ(busy.front().text, "b");
}

TEST(OutboxTest, TheEndComesAloneWhereItMust) {
  Box box(10, 100, Box::JoinEnd::kNo);
  bool overflow = false;
  EXPECT_EQ(box.PushLast({"a"}, &overflow), Box::Start::kWrite);
  EXPECT_EQ(box.Written(true), Box::Start::kFinish);
}

TEST(OutboxTest, ABadEndComesAlone) {
  Box box(10, 100);
  bool overflow = false;
  box.Push({"a"}, &overflow);
  box.Push({"b"}, &overflow);
  box.End(absl::AbortedError(""), Box::Flush::kYes);
  EXPECT_EQ(box.Written(true), Box::Start::kWrite);
  EXPECT_EQ(box.Written(true), Box::Start::kFinish);
}

TEST(OutboxTest, AFullBoxSaysSoByCountAndByBytes) {
  Box box(2, 10);
  bool overflow = false;
  box.Push({"a"}, &overflow);
  box.Push({"b"}, &overflow);
  EXPECT_FALSE(overflow);
  box.Push({"c"}, &overflow);
  EXPECT_TRUE(overflow);
  Box small(100, 10);
  small.Push({"12345678901"}, &overflow);
  EXPECT_TRUE(overflow);
}

TEST(OutboxTest, EndWithoutFlushDropsWhatWaitsButNotWhatIsBeingWritten) {
  Box box(10, 100);
  bool overflow = false;
  box.Push({"a"}, &overflow);
  box.Push({"b"}, &overflow);
  EXPECT_EQ(box.End(absl::CancelledError(""), Box::Flush::kNo), Box::Start::kNothing);
  EXPECT_EQ(box.Written(true), Box::Start::kFinish);
  EXPECT_EQ(box.end().code(), absl::StatusCode::kCancelled);
}

TEST(OutboxTest, ABrokenStreamGetsNoMoreWrites) {
  Box box(10, 100);
  bool overflow = false;
  box.Push({"a"}, &overflow);
  box.Push({"b"}, &overflow);
  EXPECT_EQ(box.Written(false), Box::Start::kFinish);
  EXPECT_EQ(box.Push({"c"}, &overflow), Box::Start::kNothing);
}

}  // namespace
}  // namespace annulus

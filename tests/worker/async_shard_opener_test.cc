#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/base/gate.h"
#include "worker/shard_opener.h"

namespace annulus {
namespace {

class OpeningsTest : public testing::Test {
 protected:
  static ShardId Id(const std::string& job) { return {job, 1, 0}; }
  void Note(const std::string& what) {
    MutexLock lock(&mutex_);
    noted_.push_back(what);
  }
  // Begins an opening that passes the gate.
  void Begin(const std::string& job, Gate* gate = nullptr) {
    opener_->Begin(
        Id(job),
        [this, job, gate] {
          if (gate != nullptr) gate->Pass();
          Note("open " + job);
        },
        [this, job](const absl::Status& why) {
          Note("close " + job + ": " + std::string(why.message()));
        });
  }
  // The record, once all openings that had begun are done.
  std::vector<std::string> Noted() {
    Gate& last = lasts_.emplace_back();
    opener_->Begin(
        Id("last of " + std::to_string(lasts_.size())), [&last] { last.Pass(); },
        [](const absl::Status&) {});
    EXPECT_TRUE(last.AwaitOne());
    last.Open();
    MutexLock lock(&mutex_);
    return noted_;
  }
  using Lines = std::vector<std::string>;

  Mutex mutex_;
  Lines noted_ GUARDED_BY(mutex_);
  std::deque<Gate> lasts_;
  std::unique_ptr<AsyncShardOpener> opener_ = std::make_unique<AsyncShardOpener>();
};

TEST_F(OpeningsTest, NobodyWaitsForThem) {
  Gate gate;
  Begin("a", &gate);
  Begin("b");
  EXPECT_TRUE(gate.AwaitOne());
  gate.Open();
  EXPECT_EQ(Noted(), Lines({"open a", "open b"}));
  EXPECT_FALSE(opener_->Close(Id("a"), absl::AbortedError("over"))) << "it is the caller's";
  EXPECT_EQ(Noted(), Lines({"open a", "open b"}));
}

TEST_F(OpeningsTest, WhatIsClosedMeanwhileIsClosedOnceBehindItsOpening) {
  Gate gate;
  Begin("a", &gate);
  Begin("b");
  EXPECT_TRUE(gate.AwaitOne());
  EXPECT_TRUE(opener_->Close(Id("a"), absl::AbortedError("over")));
  EXPECT_TRUE(opener_->Close(Id("b"), absl::AbortedError("too"))) << "which has not begun";
  EXPECT_TRUE(opener_->Close(Id("a"), absl::AbortedError("again")));
  gate.Open();
  EXPECT_EQ(Noted(), Lines({"open a", "close a: over", "close b: too"}));
  Begin("b");
  EXPECT_EQ(Noted().back(), "open b");
}

}  // namespace
}  // namespace annulus

#include "worker/lane/lane_groups.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "tests/base/gate.h"
#include "tests/worker/comm/forwarding_communicator.h"
#include "tests/worker/comm/in_process.h"

namespace annulus {
namespace {

// The only member of its group, with hooks in Abort and before its destruction.
class HeldUpCommunicator final : public ForwardingCommunicator {
 public:
  HeldUpCommunicator(std::function<void()> in_abort, std::function<void()> before_end)
      : in_abort_(std::move(in_abort)), before_end_(std::move(before_end)) {}
  ~HeldUpCommunicator() override { before_end_(); }

  void Abort() override {
    in_abort_();
    ForwardingCommunicator::Abort();
  }

 private:
  Communicator& inner() const override { return *inner_; }

  const std::function<void()> in_abort_, before_end_;
  const std::unique_ptr<Communicator> inner_ = InProcessHub({}).MakeCommunicator(0);
};

class LaneGroupsTest : public testing::Test {
 protected:
  void Open(
      const GroupId& id, std::function<void()> in_abort = [] {},
      std::function<void()> before_end = [] {}) {
    groups_.Add(id);
    EXPECT_EQ(groups_.Put(id, std::make_unique<HeldUpCommunicator>(std::move(in_abort),
                                                                   std::move(before_end))),
              nullptr);
  }
  std::optional<absl::Time> Oldest() const { return groups_.OldestAbort(); }

  absl::Time now_ = absl::UnixEpoch();
  LaneGroups groups_{[this] { return now_; }};
  const GroupId one_{1, 1}, two_{1, 2};
};

TEST_F(LaneGroupsTest, AnAbortCountsWhileTheLaneIsInTheGroup) {
  Open(one_);
  {
    const auto stay = groups_.Enter(one_);
    ASSERT_TRUE(stay.has_value());
    EXPECT_EQ(Oldest(), std::nullopt) << "not aborted";
    now_ += absl::Seconds(1);
    groups_.Abort(one_);
    const absl::Time aborted = now_;
    now_ += absl::Seconds(1);
    groups_.Abort(one_);
    EXPECT_EQ(Oldest(), aborted) << "the first one counts";
    groups_.Destroy(one_);
    EXPECT_EQ(Oldest(), aborted) << "it is in the midst of it still";
  }
  EXPECT_EQ(Oldest(), std::nullopt);
}

TEST_F(LaneGroupsTest, AnAbortDoesNotCountWhileTheLaneIsInAnotherGroup) {
  Open(one_);
  Open(two_);
  const auto stay = groups_.Enter(two_);
  groups_.Abort(one_);
  now_ += absl::Hours(1);
  EXPECT_EQ(Oldest(), std::nullopt);
  EXPECT_FALSE(groups_.Enter(one_).has_value());
  EXPECT_EQ(Oldest(), std::nullopt);
}

TEST_F(LaneGroupsTest, AnEndThatHangsCountsFromItsBeginning) {
  Gate gate;
  Open(
      one_, [] {}, [&gate] { gate.Pass(); });
  groups_.Abort(one_);
  now_ += absl::Hours(1);
  std::thread lane([this] { groups_.Destroy(one_); });
  EXPECT_TRUE(gate.AwaitOne());
  EXPECT_EQ(Oldest(), now_);
  gate.Open();
  lane.join();
  EXPECT_EQ(Oldest(), std::nullopt);
}

// Closed, not aborted; the abort follows when the close does not finish.
TEST_F(LaneGroupsTest, AnAbortOfAGroupThatIsEndingCounts) {
  Gate gate;
  Open(
      one_, [] {}, [&gate] { gate.Pass(); });
  std::thread lane([this] { groups_.Destroy(one_); });
  EXPECT_TRUE(gate.AwaitOne());
  EXPECT_EQ(Oldest(), std::nullopt);
  groups_.Abort(one_);
  EXPECT_EQ(Oldest(), now_);
  gate.Open();
  lane.join();
}

TEST_F(LaneGroupsTest, AnAbortThatHangsCounts) {
  Gate gate;
  Open(one_, [&gate] { gate.Pass(); });
  std::thread other([this] { groups_.Abort(one_); });
  EXPECT_TRUE(gate.AwaitOne());
  EXPECT_EQ(Oldest(), now_);
  gate.Open();
  other.join();
  EXPECT_EQ(Oldest(), std::nullopt);
}

}  // namespace
}  // namespace annulus

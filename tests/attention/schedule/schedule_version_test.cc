// For every strategy, the messages between ranks never change, because workers of two builds may be
// in one group. If one of these numbers changes, kScheduleVersion must change too, so that the
// older worker is refused at registration and not in each job.

#include <cstdint>
#include <map>
#include <vector>

#include "attention/schedule/model/digest.h"
#include "attention/schedule/passes/segment_steps.h"
#include "gtest/gtest.h"
#include "tests/attention/schedule/schedule_cases.h"

namespace annulus {
namespace {

// FNV-1a over 64-bit words.
class Fold {
 public:
  void Add(uint64_t word) {
    for (int byte = 0; byte < 8; ++byte) hash_ = (hash_ ^ (word >> (8 * byte) & 0xff)) * kPrime;
  }
  // Adds all ranks' schedules, with each step in `parts`.
  void Add(const BuiltCase& built, int32_t parts) {
    for (const RankSchedule& rank : built.ranks) {
      const std::vector<int32_t> of_step(rank.steps.size(), parts);
      for (const PeerDigest& digest : PeerDigests(SplitSteps(rank, built.request, of_step))) {
        Add(static_cast<uint64_t>(digest.peer));
        Add(digest.sends);
        Add(digest.receives);
      }
    }
  }
  uint64_t hash() const { return hash_; }

 private:
  static constexpr uint64_t kPrime = 1099511628211u;
  uint64_t hash_ = 14695981039346656037u;
};

std::vector<Mask> SomeMasks() {
  Mask full, causal, window;
  causal.causal = window.causal = true;
  window.window_left = 5;
  return {full, causal, window};
}

uint64_t HashOf(Strategy strategy) {
  constexpr int32_t kWorld = 4;
  Fold fold;
  int64_t way = 0;
  for (const PlanOptions& plan : TestPlans(kWorld)) {
    for (const Mask& mask : SomeMasks()) {
      for (const bool gradients : {false, true}) {
        AttentionSpec spec = SmallSpec(4, 2, {Lengths(37, 41), Lengths(9, 6)}, mask);
        if (gradients) AskForGradients(/*with_sinks=*/true, &spec);
        const BuiltCase built({spec, plan, strategy, way++});
        for (const int32_t parts : {1, 3}) fold.Add(built, parts);
      }
    }
  }
  return fold.hash();
}

TEST(ScheduleVersion, EveryStrategyExchangesWhatItAlwaysDid) {
  const std::map<Strategy, uint64_t> known = {
      {Strategy::kRingPassKv, 12039103757832575289u},
      {Strategy::kAllGatherKv, 1349632122011575485u},
      {Strategy::kRotateKv, 8668210288971269385u},
      {Strategy::kHalo, 1349632122011575485u},
      {Strategy::kUlysses, 16510663408804063633u},
      {Strategy::kUlyssesRing, 2282755799569512301u},
      {Strategy::kRingPassQ, 7420991829582550077u},
      {Strategy::kDoubleRing, 10143906559754812809u},
      {Strategy::kTree, 9165736996246623085u},
  };
  EXPECT_EQ(known.size(), TestStrategies().size());
  for (const Strategy strategy : TestStrategies())
    EXPECT_EQ(HashOf(strategy), known.at(strategy)) << StrategyName(strategy);
}

// Long tasks in squares, and buffers that are split.
TEST(ScheduleVersion, LongJobsExchangeWhatTheyAlwaysDid) {
  Fold fold;
  for (const Mask& mask : SomeMasks()) {
    for (const bool deterministic : {false, true}) {
      AttentionSpec spec = SmallSpec(1, 1, {Lengths(40000, 40000)}, mask);
      spec.deterministic = deterministic;
      fold.Add(BuiltCase({spec, TestPlans(2)[0], Strategy::kRingPassKv}), 9);
    }
  }
  EXPECT_EQ(fold.hash(), 15918421168449828613u);
}

}  // namespace
}  // namespace annulus

// Damages correct schedules: the checker refuses each mutant, or the mutant gives correct results
// in all drifting runs. None is accepted and wrong.

#include "tests/attention/schedule/schedule_mutants.h"

#include <cstdio>
#include <iostream>
#include <map>

#include "attention/schedule/model/block_layout.h"
#include "attention/schedule/model/digest.h"
#include "attention/spec/parallel_degrees.h"
#include "base/error.h"
#include "gtest/gtest.h"
#include "tests/attention/checker/checker.h"
#include "tests/attention/schedule/drift.h"

namespace annulus {
namespace {

constexpr uint64_t kSeed = 20260701;

// Makes the job deterministic, if that is allowed.
void FoldInOrder(ScheduleCase* one) {
  const Strategy strategy = one->execution.strategy;
  const int32_t degree = one->execution.ulysses_degree;
  if (strategy == Strategy::kRingPassQ || strategy == Strategy::kTree) return;
  if (SharesKeyHeads(one->spec, degree) || SharesBiasGradient(one->spec, degree)) return;
  one->spec.deterministic = true;
  one->plan.granule = one->plan.stripe = 4;
}

// Makes the job round its partials in transit, if it has any. Two numbers of a value are as long as
// one rounded number of the drifting run.
void RoundPartials(ScheduleCase* one) {
  const Strategy strategy = one->execution.strategy;
  if (strategy != Strategy::kRingPassQ && strategy != Strategy::kTree) return;
  if (one->spec.operation == Operation::kGradients) return;
  one->spec.head_dim_v = 2;
  one->execution.bf16_partials = true;
}

ScheduleCase RandomCase(std::mt19937_64& random) {
  const std::vector<Mask> masks = TestMasks();
  const std::vector<PlanOptions> plans = TestPlans(2 + random() % 4);
  const Operation operation = random() % 2 == 0 ? Operation::kForward : Operation::kGradients;
  const std::vector<Strategy> strategies = TestStrategies();
  const int64_t length = 4 + random() % 16;
  std::vector<Sequence> sequences = {Lengths(length, length + random() % 4)};
  if (random() % 3 == 0) sequences.push_back(Lengths(random() % 9, random() % 9));
  constexpr int32_t kHeads[][2] = {{1, 1}, {2, 1}, {4, 2}, {6, 3}, {5, 5}};
  const auto& heads = kHeads[random() % 5];
  AttentionSpec spec = SmallSpec(heads[0], heads[1], sequences, masks[random() % masks.size()]);
  VaryMasks(static_cast<int64_t>(random() % kMaskWays), &spec);
  if (operation == Operation::kGradients) {
    AskForGradients(random() % 2 == 0, &spec);
    if (random() % 3 == 0) AskForBiasGradient(random() % 2 == 0, &spec);
  }
  ScheduleCase one(std::move(spec), plans[random() % plans.size()],
                   strategies[random() % strategies.size()], static_cast<int64_t>(random() % 64));
  const uint64_t option = random() % 4;
  if (option == 0) FoldInOrder(&one);
  if (option == 1) RoundPartials(&one);
  return one;
}

struct Tally {
  int refused = 0, harmless = 0, wrong = 0;
  int refused_in_order = 0, refused_rounded = 0;
  std::map<std::pair<Operation, Strategy>, int> refused_of;  // Key: builder.
};

void PlaceAgain(Mutant* mutant) {
  const BlockLayout layout(mutant->built->spec);
  for (size_t r = 0; r < mutant->ranks.size(); ++r) {
    mutant->placements[r] = PlanArena(mutant->ranks[r], layout, 4);
  }
}

void Judge(const Damage& damage, const ScheduleCase& one, std::mt19937_64& random, Tally* tally) {
  const BuiltCase built(one);
  Mutant mutant{&built, built.ranks, built.placements};
  if (!damage.apply(mutant, random)) return;
  if (damage.place_again) PlaceAgain(&mutant);
  const absl::Status checked = CheckSchedule(built.request, mutant.ranks, mutant.placements);
  if (!checked.ok()) {
    EXPECT_EQ(DetailOf(checked).reason, "SCHEDULE_BROKEN") << damage.name;
    ++tally->refused;
    tally->refused_in_order += one.spec.deterministic;
    tally->refused_rounded += one.execution.bf16_partials;
    ++tally->refused_of[{one.spec.operation, one.execution.strategy}];
    return;
  }
  for (int run = 0; run < 3; ++run) {
    const uint64_t seed = random();
    const absl::Status ran = RunDrifting(built, mutant.ranks, mutant.placements, seed);
    if (!ran.ok()) {
      ADD_FAILURE() << damage.name << " accepted and wrong: " << Describe(one) << ": " << ran
                    << " seed " << seed;
      ++tally->wrong;
      return;
    }
  }
  ++tally->harmless;
}

TEST(ScheduleMutants, NoneIsAcceptedAndWrong) {
  std::mt19937_64 random(kSeed);
  std::cout << "seed " << kSeed << "\n";
  const std::vector<Damage> damages = AllDamages();
  EXPECT_GE(damages.size(), 40u);
  int refused = 0, harmless = 0, in_order = 0, rounded = 0;
  std::map<std::pair<Operation, Strategy>, int> refused_of;
  for (const Damage& damage : damages) {
    Tally tally;
    for (int i = 0; i < 500; ++i) Judge(damage, RandomCase(random), random, &tally);
    std::printf("%-34s refused %4d harmless %4d\n", damage.name.c_str(), tally.refused,
                tally.harmless);
    EXPECT_GE(tally.refused + tally.harmless, 10) << damage.name << " hardly applies";
    refused += tally.refused;
    harmless += tally.harmless;
    in_order += tally.refused_in_order;
    rounded += tally.refused_rounded;
    for (const auto& [builder, count] : tally.refused_of) refused_of[builder] += count;
  }
  EXPECT_GT(refused, 2000);
  EXPECT_GT(in_order, 1000);
  EXPECT_GT(rounded, 200);
  for (const Operation operation : {Operation::kForward, Operation::kGradients}) {
    for (const Strategy strategy : TestStrategies()) {
      const int count = refused_of[{operation, strategy}];
      EXPECT_GT(count, 100) << StrategyName(strategy)
                            << (operation == Operation::kForward ? "" : ", gradients");
    }
  }
  std::cout << "refused " << refused << ", accepted and right " << harmless << "\n";
}

// Without the checker, the drifting runs detect the damage too, so they are able to fail.
TEST(ScheduleMutants, DriftingRanksNoticeDamage) {
  std::mt19937_64 random(kSeed + 1);
  int wrong = 0;
  for (const Damage& damage : AllDamages()) {
    if (damage.name != "drop a task" && damage.name != "do a task twice" &&
        damage.name != "drop a receive" && damage.name != "swap two receives of equal size") {
      continue;
    }
    for (int i = 0; i < 50; ++i) {
      const BuiltCase built(RandomCase(random));
      Mutant mutant{&built, built.ranks, built.placements};
      if (!damage.apply(mutant, random)) continue;
      wrong += RunDrifting(built, mutant.ranks, mutant.placements, random()).ok() ? 0 : 1;
    }
  }
  EXPECT_GT(wrong, 60);
}

// The comparison before a start, in which no rank has all schedules.
bool DigestsAgree(const std::vector<RankSchedule>& ranks) {
  std::map<std::pair<int32_t, int32_t>, uint64_t> sends, receives;
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (const PeerDigest& digest : PeerDigests(ranks[r])) {
      sends[{r, digest.peer}] = digest.sends;
      receives[{digest.peer, r}] = digest.receives;
    }
  }
  return sends == receives;
}

TEST(ScheduleDigests, AgreeForEveryScheduleAndDifferForTransfersThatDoNotMatch) {
  std::mt19937_64 random(kSeed + 2);
  int found = 0;
  for (int i = 0; i < 300; ++i) {
    const BuiltCase built(RandomCase(random));
    ASSERT_TRUE(DigestsAgree(built.ranks));
    for (const Damage& damage : AllDamages()) {
      if (damage.name != "drop a send" && damage.name != "shrink a receive" &&
          damage.name != "swap two sends of equal size" && damage.name != "send to another rank") {
        continue;
      }
      Mutant mutant{&built, built.ranks, built.placements};
      if (!damage.apply(mutant, random)) continue;
      EXPECT_FALSE(DigestsAgree(mutant.ranks)) << damage.name;
      ++found;
    }
  }
  EXPECT_GT(found, 300);
}

}  // namespace
}  // namespace annulus

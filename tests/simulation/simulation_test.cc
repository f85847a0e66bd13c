// Seeded histories of a whole cluster. `--seed N` replays one; `--histories N` and `--first N`
// choose others.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/simulation/sim_cluster.h"

namespace annulus {
namespace {

struct Arguments {
  uint64_t first = 1;
  uint64_t histories = 1200;
  uint64_t seed = 0;  // 0: not set.
};
Arguments arguments;

constexpr int kMostFailures = 5;

// Each option is drawn independently, so that all combinations occur.
SimOptions OptionsOf(uint64_t seed) {
  std::mt19937_64 random(~seed);  // The history's own random numbers begin with `seed`.
  SimOptions options;
  options.seed = seed;
  options.workers = 1 + static_cast<int>(random() % 8);
  options.jobs = 6 + static_cast<int>(random() % 13);
  options.faults = random() % 4 != 0;
  options.coordinator_restarts = random() % 3 == 0;
  options.max_queued_jobs = 6 + random() % 7;
  options.solo_jobs_per_worker = 1 + static_cast<int32_t>(random() % 4);
  return options;
}

std::string Replay(uint64_t seed) { return absl::StrCat("replay with --seed ", seed); }

TEST(Simulation, InvariantsHoldAfterEveryEventOfEveryHistory) {
  const uint64_t first = arguments.seed != 0 ? arguments.seed : arguments.first;
  const uint64_t count = arguments.seed != 0 ? 1 : arguments.histories;
  EventCoverage coverage;
  int64_t events = 0;
  int failed = 0;
  std::map<std::string, int> ends;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SimCluster cluster(OptionsOf(seed));
    const absl::Status status = cluster.Run();
    EXPECT_TRUE(status.ok()) << Replay(seed) << ": " << status.message();
    failed += !status.ok();
    if (failed == kMostFailures) return;
    coverage.Add(cluster.coverage());
    events += cluster.events();
    for (const auto& [reason, times] : cluster.ends()) ends[reason] += times;
  }
  std::cout << count << " histories from seed " << first << ", " << events << " events\n"
            << coverage.Table() << "\nends of jobs:";
  for (const auto& [reason, times] : ends) std::cout << " " << reason << "=" << times;
  std::cout << std::endl;
  if (count < 1000) return;
  for (const std::string& pair : coverage.Missing()) ADD_FAILURE() << "never happened: " << pair;
}

// The same seed gives the same history: every event, action and state.
TEST(Simulation, IsDeterministic) {
  std::set<size_t> fingerprints;
  for (const uint64_t seed : {7, 9, 16}) {
    size_t ours[2];
    for (size_t& fingerprint : ours) {
      SimOptions options = OptionsOf(seed);
      options.fingerprint = true;
      SimCluster cluster(options);
      EXPECT_TRUE(cluster.Run().ok());
      fingerprint = cluster.fingerprint();
    }
    EXPECT_EQ(ours[0], ours[1]) << seed;
    fingerprints.insert(ours[0]);
  }
  EXPECT_EQ(fingerprints.size(), 3u);
}

struct Bug {
  Planted planted;
  const char* found;  // The error of the check that should find it.
};

class PlantedBug : public testing::TestWithParam<Bug> {};

TEST_P(PlantedBug, IsFoundByItsCheck) {
  std::string others;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SimOptions options = OptionsOf(seed);
    options.planted = GetParam().planted;
    const absl::Status status = SimCluster(options).Run();
    if (status.ok()) continue;
    if (absl::StrContains(status.message(), GetParam().found)) {
      std::cout << "found with seed " << seed << ": " << status.message() << std::endl;
      return;
    }
    others = std::string(status.message());
  }
  FAIL() << "200 histories did not show it, but " << others;
}

INSTANTIATE_TEST_SUITE_P(All, PlantedBug,
                         testing::Values(Bug{Planted::kTwoEnds,
                                             "invariant 11: an event after the terminal state"},
                                         Bug{Planted::kSwappedLanes, "invariant 13: the lane of"},
                                         Bug{Planted::kEarlyRelease, "is over its limit"},
                                         Bug{Planted::kLostDrop, "invariant 8:"},
                                         Bug{Planted::kGhost, "invariant 7: an old message"},
                                         Bug{Planted::kKeptBytes, "invariant 10: the ledger of"}));

}  // namespace
}  // namespace annulus

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (flag == "--seed") annulus::arguments.seed = value;
    if (flag == "--histories") annulus::arguments.histories = value;
    if (flag == "--first") annulus::arguments.first = value;
  }
  return RUN_ALL_TESTS();
}

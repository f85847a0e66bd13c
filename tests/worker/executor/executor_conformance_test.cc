// Compares jobs with the reference, forward and backward. They cover all pairs of strategy, layout,
// mask, modifier, type, heads, dimensions, rows, ranks and cuts. Each strategy in both operations
// meets each mask, modifier, layout and number of ranks. Proves that the cover is complete.

#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "attention/spec/parallel_degrees.h"
#include "gtest/gtest.h"
#include "tests/attention/schedule/schedule_cases.h"
#include "tests/sanitized.h"
#include "tests/worker/executor/conformance_cases.h"
#include "tests/worker/kernel/reference_kernel.h"
#include "worker/kernel/cpu/cpu_kernel.h"

namespace annulus {
namespace {

constexpr uint64_t kSeed = 20261122;
// The number of coverings. Each has every pair, with other companions and other shapes.
constexpr int kCoverings = kSanitized ? 1 : 6;

const std::vector<Combination>& Covering(int n) {
  static auto* all = new std::map<int, std::vector<Combination>>;
  auto [at, is_new] = all->try_emplace(n);
  if (is_new) at->second = CoverPairs(ConformanceSizes(), IsMeaningful, kSeed + n);
  return at->second;
}

// Pairs of an axis and a value.
using Values = std::vector<std::pair<int32_t, int32_t>>;

bool Has(const Combination& combination, const Values& values) {
  return std::all_of(values.begin(), values.end(),
                     [&](const auto& one) { return combination[one.first] == one.second; });
}

bool HasAny(const std::vector<Combination>& all, const Values& values) {
  return std::any_of(all.begin(), all.end(), [&](const auto& one) { return Has(one, values); });
}

// Combinations that each strategy must meet, forward and backward.
std::vector<Values> Triples() {
  const std::vector<int32_t> sizes = ConformanceSizes();
  const int32_t operation = AxisNamed("operation"), strategy = AxisNamed("strategy");
  std::vector<Values> all;
  for (const char* name : {"mask", "modifier", "ranks", "layout"}) {
    const int32_t axis = AxisNamed(name);
    for (int32_t o = 0; o < sizes[operation]; ++o) {
      for (int32_t s = 0; s < sizes[strategy]; ++s) {
        for (int32_t x = 0; x < sizes[axis]; ++x) {
          if (IsMeaningful(operation, o, axis, x))
            all.push_back({{operation, o}, {strategy, s}, {axis, x}});
        }
      }
    }
  }
  return all;
}

bool AllMeaningful(const Combination& combination) {
  const auto axes = static_cast<int32_t>(combination.size());
  for (int32_t a = 0; a < axes; ++a) {
    for (int32_t b = a + 1; b < axes; ++b) {
      if (!IsMeaningful(a, combination[a], b, combination[b])) return false;
    }
  }
  return true;
}

// Jobs of the given number of coverings, each with other values, for those of Triples() that none
// of these has.
std::vector<Combination> MissingTriples(int coverings) {
  std::vector<Combination> made;
  for (const Values& values : Triples()) {
    bool found = HasAny(made, values);
    for (int n = 0; n < coverings && !found; ++n) found = HasAny(Covering(n), values);
    const std::vector<Combination>& from = Covering(static_cast<int>(made.size()) % coverings);
    for (size_t i = 0; i < from.size() && !found; ++i) {
      Combination changed = from[(made.size() + i) % from.size()];
      for (const auto& [axis, value] : values) changed[axis] = value;
      found = AllMeaningful(changed);
      if (found) made.push_back(std::move(changed));
    }
  }
  return made;
}

// The combinations of covering n; for n = kCoverings, those that all coverings lack.
const std::vector<Combination>& Combinations(int n) {
  if (n < kCoverings) return Covering(n);
  static const auto& missing = *new std::vector<Combination>(
      kSanitized ? std::vector<Combination>() : MissingTriples(kCoverings));
  return missing;
}

std::unique_ptr<AttentionKernel> MakeReference() { return std::make_unique<ReferenceKernel>(); }
std::unique_ptr<AttentionKernel> MakeCpu() { return *CpuKernel::Create({}); }

TEST(Pairwise, CoversEveryMeaningfulPairAndNoOther) {
  const std::vector<int32_t> sizes = {5, 4, 3, 3, 2, 2};
  const auto meaningful = [](int32_t a, int32_t i, int32_t b, int32_t j) {
    return !(a == 0 && i == 2 && b == 4 && j == 1) && !(a == 1 && b == 2 && i == j);
  };
  const std::vector<Combination> all = CoverPairs(sizes, meaningful, 5);
  EXPECT_LE(all.size(), 28u);  // The largest pair of axes has 20 pairs.
  for (int32_t a = 0; a < 6; ++a) {
    for (int32_t b = a + 1; b < 6; ++b) {
      std::set<std::pair<int32_t, int32_t>> seen, wanted;
      for (const Combination& c : all) seen.insert({c[a], c[b]});
      for (int32_t i = 0; i < sizes[a]; ++i) {
        for (int32_t j = 0; j < sizes[b]; ++j) {
          if (meaningful(a, i, b, j)) wanted.insert({i, j});
        }
      }
      EXPECT_EQ(seen, wanted) << a << " " << b;
    }
  }
}

TEST(ConformancePairs, EveryMeaningfulOneIsInEveryCovering) {
  const std::vector<Axis>& axes = ConformanceAxes();
  int64_t pairs = 0;
  for (int n = 0; n < kCoverings; ++n) {
    pairs = 0;
    for (int32_t a = 0; a < static_cast<int32_t>(axes.size()); ++a) {
      for (int32_t b = a + 1; b < static_cast<int32_t>(axes.size()); ++b) {
        std::set<std::pair<int32_t, int32_t>> seen;
        for (const Combination& c : Covering(n)) seen.insert({c[a], c[b]});
        for (int32_t i = 0; i < ConformanceSizes()[a]; ++i) {
          for (int32_t j = 0; j < ConformanceSizes()[b]; ++j) {
            const bool meaningful = IsMeaningful(a, i, b, j);
            pairs += meaningful ? 1 : 0;
            EXPECT_EQ(seen.count({i, j}) > 0, meaningful)
                << axes[a].name << " " << axes[a].values[i].name << " with " << axes[b].name << " "
                << axes[b].values[j].name;
          }
        }
      }
    }
    std::cout << "covering " << n << ": " << pairs << " pairs in " << Covering(n).size()
              << " jobs, seed " << kSeed + n << "\n";
  }
  EXPECT_GT(pairs, 2000);
}

TEST(ConformanceTriples, EveryStrategyMeetsAllMasksModifiersRanksAndLayoutsBothWays) {
  const std::vector<Axis>& axes = ConformanceAxes();
  const std::vector<Values> triples = Triples();
  EXPECT_GT(triples.size(), 750u);
  for (const int coverings : std::set<int>{1, kCoverings}) {
    const std::vector<Combination> missing = MissingTriples(coverings);
    for (const Values& values : triples) {
      bool found = HasAny(missing, values);
      for (int n = 0; n < coverings && !found; ++n) found = HasAny(Covering(n), values);
      std::string names;
      for (const auto& [axis, value] : values)
        absl::StrAppend(&names, axes[axis].values[value].name, ", ");
      EXPECT_TRUE(found) << names;
    }
    for (const Combination& combination : missing) EXPECT_TRUE(AllMeaningful(combination));
    std::cout << triples.size() << " triples, " << missing.size() << " jobs for what " << coverings
              << " coverings lack\n";
  }
}

class Conformance : public testing::TestWithParam<int32_t> {
 protected:
  int32_t world() const { return GetParam(); }

  // True if rows ended in tasks.
  static bool Run(const JobCase& job, bool cpu_kernel = false) {
    JobRunner runner(job);
    EXPECT_TRUE(runner.RunAndJudge(DelayedGroup(job.plan.world_size),
                                   cpu_kernel ? MakeCpu : MakeReference));
    return runner.EndsRows();
  }

  // Runs all jobs on this number of ranks.
  void RunAll(Operation operation) {
    const int32_t ranks = AxisNamed("ranks");
    int64_t jobs = 0, ended = 0;
    for (int n = 0; n <= kCoverings; ++n) {
      const std::vector<Combination>& covering = Combinations(n);
      for (size_t i = 0; i < covering.size(); ++i) {
        if (covering[i][ranks] != world() - 1) continue;
        const ConformanceJob made = MakeConformanceJob(covering[i], kSeed + 1000 * n + i);
        if (made.job.spec.operation != operation) continue;
        SCOPED_TRACE(Describe(covering[i]));
        ended += Run(made.job, made.cpu_kernel) ? 1 : 0;
        ++jobs;
      }
    }
    EXPECT_EQ(ended > 0, operation == Operation::kForward);
    std::cout << jobs << " jobs, seed " << kSeed << "\n";
    EXPECT_GE(jobs, kCoverings);
  }
};

TEST_P(Conformance, Forward) { RunAll(Operation::kForward); }

TEST_P(Conformance, Gradients) { RunAll(Operation::kGradients); }

// Every head partition: heads that the ranks do not divide, fewer key/value heads than ranks, whole
// heads and units, every grid.
TEST_P(Conformance, HeadsOfAnyNumber) {
  constexpr int32_t kHeads[][2] = {{6, 3}, {2, 1}, {8, 1}, {5, 5}, {7, 7}, {12, 4}};
  const std::vector<PlanOptions> plans = TestPlans(world());
  Draw draw(kSeed + world());
  JobCase job;
  for (const auto& heads : kHeads) {
    for (const Strategy strategy : {Strategy::kUlysses, Strategy::kUlyssesRing}) {
      Execution open;
      open.strategy = strategy;
      for (const Execution& execution : ResolveDegrees(open, world(), heads[0])) {
        job.spec = SmallSpec(draw.Below(2) == 0 ? DataType::kFp32 : DataType::kBf16, 21, 26);
        job.spec.q_heads = heads[0];
        job.spec.kv_heads = heads[1];
        job.spec.masks.resize(1);
        job.spec.masks[0].causal = true;
        job.plan = plans[draw.Below(static_cast<int64_t>(plans.size()))];
        job.execution = execution;
        job.parts = 1 + static_cast<int32_t>(draw.Below(2));
        ++job.seed;
        Run(job);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Conformance, testing::Range(1, 9),
                         [](const auto& info) { return absl::StrCat("W", info.param); });

// At a size at which the budget's naive error is steady.
TEST(ConformanceOverGloo, EveryStrategyForwardAndBackward) {
  for (const int32_t world :
       kSanitized ? std::vector<int32_t>{3} : std::vector<int32_t>{2, 3, 4, 5, 7}) {
    Group group = ConnectedGroup(GlooGroup, world);
    ASSERT_FALSE(group.empty());
    for (const Operation operation : {Operation::kForward, Operation::kGradients}) {
      for (const Strategy strategy : TestStrategies()) {
        JobCase job;
        job.spec = SmallSpec(DataType::kBf16, 121, 127);
        job.spec.operation = operation;
        job.spec.gradients.d_lse = operation == Operation::kGradients;
        job.spec.head_dim = 64;
        job.spec.head_dim_v = 64;
        job.spec.masks.resize(1);
        job.spec.masks[0].causal = true;
        job.plan.layout = Layout::kZigzag;
        job.plan.world_size = world;
        SetStrategy(strategy, 1, &job);
        job.segments = 2;
        EXPECT_TRUE(JobRunner(job).RunAndJudge(group, MakeCpu));
      }
    }
  }
}

}  // namespace
}  // namespace annulus

// If bytes dominate, the side with fewer bytes travels: queries or keys.
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/planning/choose_execution.h"
#include "gtest/gtest.h"
#include "tests/attention/planning/cost_cases.h"

namespace annulus {
namespace {

// True if the chosen execution moves queries. Candidates: four ranks without an exchange of heads.
bool QueriesTravel(const AttentionSpec& spec) {
  Execution wanted;
  wanted.world_size = wanted.ring_degree = 4;
  Choice choice = Offer({4});
  choice.rates.link_bytes_per_second = 1e5;
  const auto candidates = ChooseExecution(spec, wanted, choice);
  if (!candidates.ok()) {
    ADD_FAILURE() << candidates.status();
    return false;
  }
  const Strategy taken = candidates->front().execution.strategy;
  return taken == Strategy::kRingPassQ || taken == Strategy::kTree;
}

// Bytes per row: K and V; Q and the returned partial, in fp32 with two sums.
TEST(FewestBytesTest, QueriesTravelWhereTheyAndTheirPartialsAreFewer) {
  for (const auto& [q_heads, kv_heads] : {std::pair(8, 2), {8, 8}, {8, 1}}) {
    AttentionSpec spec = CostSpec(0, 8192, false);
    spec.q_heads = q_heads;
    spec.kv_heads = kv_heads;
    const double key = kv_heads * 2 * 64 * 2, query = q_heads * (64 * 2 + (64 + 2) * 4);
    for (const double part : {0.05, 0.5, 0.97, 1.03, 2.0, 4.0}) {
      spec.sequences[0].q_len = static_cast<int64_t>(part * 8192 * key / query);
      SCOPED_TRACE(absl::StrCat(q_heads, "/", kv_heads, " heads, ", spec.sequences[0].q_len));
      EXPECT_EQ(QueriesTravel(spec), part < 1);
    }
  }
}

// For gradients, query rows travel with their inputs and return with dq.
TEST(FewestBytesTest, OfGradientsTooTheFewerBytesTravel) {
  for (const auto& [q_heads, kv_heads] : {std::pair(8, 2), {8, 8}, {8, 1}}) {
    AttentionSpec spec = CostSpec(0, 8192, false);
    spec.operation = Operation::kGradients;
    spec.q_heads = q_heads;
    spec.kv_heads = kv_heads;
    const double key = kv_heads * (2 * 64 * 2 + 2 * 64 * 4);
    const double query = q_heads * (2 * 64 * 2 + 2 * 4 + 64 * 4);
    for (const double part : {0.05, 0.5, 0.97, 1.03, 2.0, 4.0}) {
      spec.sequences[0].q_len = static_cast<int64_t>(part * 8192 * key / query);
      SCOPED_TRACE(absl::StrCat(q_heads, "/", kv_heads, " heads, ", spec.sequences[0].q_len));
      EXPECT_EQ(QueriesTravel(spec), part < 1);
    }
  }
}

}  // namespace
}  // namespace annulus

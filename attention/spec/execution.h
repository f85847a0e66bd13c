#ifndef ANNULUS_ATTENTION_SPEC_EXECUTION_H_
#define ANNULUS_ATTENTION_SPEC_EXECUTION_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace annulus {

// How a request runs, beside what it computes (attention/spec/spec.h): the mirror of
// annulus.v1.Execution, free of protobuf.

enum class Strategy : uint8_t {
  kAuto = 0,
  kRingPassKv = 1,
  kAllGatherKv = 2,
  kRotateKv = 3,
  kRingPassQ = 4,
  kUlysses = 5,
  kUlyssesRing = 6,
  kDoubleRing = 7,
  kTree = 8,
  kHalo = 9,
};
inline constexpr Strategy kLastStrategy = Strategy::kHalo;  // The largest value.

enum class Layout : uint8_t {
  kAuto = 0,
  kContiguous = 1,
  kZigzag = 2,
  kStriped = 3,
  kByArea = 4,
  kZigzagPerSequence = 5,
};
inline constexpr Layout kLastLayout = Layout::kZigzagPerSequence;  // The largest value.

// How the ranks that exchange heads share them out (docs/explanation/strategies.md).
enum class HeadAssignment : uint8_t {
  kAuto = 0,
  kWholeHeads = 1,
  kUnits = 2,  // A unit is one head of the queries of one rank.
};
inline constexpr HeadAssignment kLastHeadAssignment = HeadAssignment::kUnits;  // The largest value.

// How to run a job: every field is met or the job is refused; only kAuto and 0 leave a choice.
struct Execution {
  Strategy strategy = Strategy::kAuto;
  Layout layout = Layout::kAuto;
  int32_t world_size = 0;         // 0: chosen by the planner.
  int32_t ulysses_degree = 0;     // Ranks that exchange heads; 0: chosen by the planner.
  int32_t ring_degree = 0;        // world_size / ulysses_degree; 0: chosen by the planner.
  int32_t inner_ring_degree = 0;  // Of a double ring, neighbours; 0: chosen by the planner.
  HeadAssignment head_deal = HeadAssignment::kAuto;
  // Rows of a stripe in the striped layout; 0: 1, or what a deterministic job takes.
  int32_t stripe = 0;
  bool bf16_partials = false;  // Partial outputs travel in bf16, by strategies that send them.
  int32_t priority = 0;        // Larger: earlier, among a principal's jobs.
  bool timeline = false;
};

// Waiting this long counts as much as one step of priority, so that nothing starves; and a wider
// range would let important jobs starve others for hours.
inline constexpr absl::Duration kPriorityStep = absl::Seconds(10);
inline constexpr int32_t kMaxPriority = 10;  // −10 is the least.

// Whether the ranks of a strategy (not kAuto) send one another partial outputs.
constexpr bool SendsPartials(Strategy strategy) {
  return strategy == Strategy::kRingPassQ || strategy == Strategy::kTree;
}

// "ring-pass-kv", "auto", ...; "zigzag", "auto", ...; "whole-heads", "auto", ...
absl::string_view StrategyName(Strategy strategy);
absl::string_view LayoutName(Layout layout);
absl::string_view HeadDealName(HeadAssignment deal);
// The inverse; '_' equals '-', upper case equals lower case. Absent for an unknown name.
std::optional<Strategy> ParseStrategy(absl::string_view name);
std::optional<Layout> ParseLayout(absl::string_view name);
std::optional<HeadAssignment> ParseHeadDeal(absl::string_view name);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SPEC_EXECUTION_H_

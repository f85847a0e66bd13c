#ifndef ANNULUS_ATTENTION_SPEC_EXECUTION_H_
#define ANNULUS_ATTENTION_SPEC_EXECUTION_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace annulus {

// How a request runs. attention/spec/spec.h says what it computes. Mirrors annulus.v1.Execution
// without protobuf.

// docs/explanation/strategies.md describes the strategies.
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

// attention/sharding/shard_plan.h describes the layouts.
enum class Layout : uint8_t {
  kAuto = 0,
  kContiguous = 1,
  kZigzag = 2,
  kStriped = 3,
  kByArea = 4,
  kZigzagPerSequence = 5,
};
inline constexpr Layout kLastLayout = Layout::kZigzagPerSequence;  // The largest value.

// How the ranks that exchange heads divide them (docs/explanation/strategies.md).
enum class HeadAssignment : uint8_t {
  kAuto = 0,
  kWholeHeads = 1,
  kUnits = 2,  // A unit is one query head of the rows of one rank.
};
inline constexpr HeadAssignment kLastHeadAssignment = HeadAssignment::kUnits;  // The largest value.

// The parallel config of a job. Every field is met, or the job is refused. kAuto and 0 leave the
// choice to the planner, unless a comment says otherwise.
struct Execution {
  Strategy strategy = Strategy::kAuto;
  Layout layout = Layout::kAuto;
  int32_t world_size = 0;         // 0: chosen by the planner.
  int32_t ulysses_degree = 0;     // Ranks that exchange heads.
  int32_t ring_degree = 0;        // world_size / ulysses_degree.
  int32_t inner_ring_degree = 0;  // Neighbours in an inner ring of a double ring.
  HeadAssignment head_deal = HeadAssignment::kAuto;
  // Rows per stripe in the striped layout. 0 means 1, or the default of a deterministic job
  // (StripeOf).
  int32_t stripe = 0;
  // True if partial outputs travel in bf16, in strategies that send them.
  bool bf16_partials = false;
  int32_t priority = 0;  // A larger priority runs earlier, among a principal's jobs.
  bool timeline = false;
};

// Waiting this long counts as much as one step of priority, so no job starves. A wider range than
// kMaxPriority would let important jobs starve others for hours.
inline constexpr absl::Duration kPriorityStep = absl::Seconds(10);
inline constexpr int32_t kMaxPriority = 10;  // The lowest priority is −10.

// True if the ranks of a strategy (not kAuto) send partial outputs to one another.
constexpr bool SendsPartials(Strategy strategy) {
  return strategy == Strategy::kRingPassQ || strategy == Strategy::kTree;
}

// Names as in flags: "ring-pass-kv", "auto", ...; "zigzag", "auto", ...; "whole-heads", "auto", ...
// Returns "unknown" for a value outside the enum.
absl::string_view StrategyName(Strategy strategy);
absl::string_view LayoutName(Layout layout);
absl::string_view HeadDealName(HeadAssignment deal);
// The inverse. '_' equals '-', and case does not matter. Absent for an unknown name.
std::optional<Strategy> ParseStrategy(absl::string_view name);
std::optional<Layout> ParseLayout(absl::string_view name);
std::optional<HeadAssignment> ParseHeadDeal(absl::string_view name);

}  // namespace annulus

#endif  // ANNULUS_ATTENTION_SPEC_EXECUTION_H_

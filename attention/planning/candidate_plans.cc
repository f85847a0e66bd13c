#include "attention/planning/candidate_plans.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/mask/mask_cost.h"
#include "attention/schedule/passes/fix_order.h"
#include "attention/sharding/shard_plan.h"
#include "attention/spec/parallel_degrees.h"
#include "attention/validate/validate.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace annulus {
namespace {

// The strategies and layouts of auto, best first in case of equal predictions. rotate-kv comes
// before ring-pass-kv: if all links are alike, it sends no more and never waits for a neighbour.
// Shards by area are evaluated only if these layouts leave the work uneven.
constexpr Strategy kStrategies[] = {
    Strategy::kRotateKv,    Strategy::kRingPassKv, Strategy::kAllGatherKv, Strategy::kUlysses,
    Strategy::kUlyssesRing, Strategy::kTree,       Strategy::kRingPassQ};
constexpr Layout kLayouts[] = {Layout::kContiguous, Layout::kZigzag};

// With more sequences, zigzag-per-sequence takes long to plan, and auto never chooses it.
constexpr size_t kMostShownSequences = 32;

constexpr char kHaloAside[] = "left aside: it is all-gather-kv by another name";
constexpr char kDoubleRingAside[] =
    "left aside: it sends what a ring does, and is for links that differ, which are not known";
constexpr char kStripedAside[] =
    "left aside: nearly every tile is a boundary tile, which its predicted time does not count";
constexpr char kPerSequenceAside[] =
    "left aside: where it would even out the work, shards by area do with fewer cuts";

absl::Status TooFewWorkers(const std::string& field, int32_t wanted, int32_t largest) {
  return MakeError(
      absl::StatusCode::kFailedPrecondition,
      absl::StrCat(field, ": ", wanted, " workers are wanted and ", largest, " are ready"),
      ErrorDetail{"INSUFFICIENT_WORKERS",
                  {{"wanted", absl::StrCat(wanted)}, {"ready", absl::StrCat(largest)}},
                  {{field, "more workers than are ready"}},
                  {}});
}

// The field that asks for the most ranks.
std::string FieldOfSize(const Execution& wanted) {
  if (wanted.world_size > 0) return "execution.world_size";
  if (wanted.ulysses_degree > 1) return "execution.ulysses_degree";
  if (wanted.inner_ring_degree > wanted.ring_degree) return "execution.inner_ring_degree";
  const bool of_partials = wanted.bf16_partials && wanted.ring_degree == 0;
  return of_partials ? "execution.bf16_partials" : "execution.ring_degree";
}

// `take` resets the option; returns true if it was set.
struct Option {
  const char* name;
  bool (*take)(Execution*);
};
constexpr Option kOptions[] = {
    {"strategy",
     [](Execution* e) { return std::exchange(e->strategy, Strategy::kAuto) != Strategy::kAuto; }},
    {"world_size", [](Execution* e) { return std::exchange(e->world_size, 0) != 0; }},
    {"ulysses_degree", [](Execution* e) { return std::exchange(e->ulysses_degree, 0) != 0; }},
    {"ring_degree", [](Execution* e) { return std::exchange(e->ring_degree, 0) != 0; }},
    {"inner_ring_degree", [](Execution* e) { return std::exchange(e->inner_ring_degree, 0) != 0; }},
    {"head_deal",
     [](Execution* e) {
       return std::exchange(e->head_deal, HeadAssignment::kAuto) != HeadAssignment::kAuto;
     }},
    {"bf16_partials", [](Execution* e) { return std::exchange(e->bf16_partials, false); }}};

bool LeavesWays(const Execution& wanted, const std::vector<int32_t>& sizes,
                const AttentionSpec& spec) {
  const absl::StatusOr<std::vector<int32_t>> open = EnumerateWorldSizes(wanted, sizes);
  return open.ok() && std::any_of(open->begin(), open->end(), [&](int32_t size) {
           return !EnumerateExecutions(wanted, size, spec).empty();
         });
}

// True if striped shards are planned without visiting spans or ranges one by one.
bool IsSoonStriped(const AttentionSpec& spec) {
  return std::all_of(spec.masks.begin(), spec.masks.end(), [](const Mask& mask) {
    return mask.ranges.empty() && SpanOf(mask) >= kMostRows;
  });
}

// EnumerateExecutions already lists the plain ring and plain Ulysses.
bool IsTrivialGrid(const Execution& execution) {
  return execution.strategy == Strategy::kUlyssesRing &&
         (execution.ulysses_degree == 1 || execution.ring_degree == 1);
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> EnumerateWorldSizes(const Execution& wanted,
                                                         std::vector<int32_t> sizes) {
  std::sort(sizes.begin(), sizes.end());
  const int32_t largest = sizes.empty() ? 0 : sizes.back();
  const int32_t ulysses = wanted.ulysses_degree, ring = wanted.ring_degree;
  const Strategy strategy = wanted.strategy;
  const bool grid = strategy == Strategy::kAuto || strategy == Strategy::kUlyssesRing;
  int32_t size = wanted.world_size;
  if (size == 0 && ulysses > 0 && ring > 0) size = ulysses * ring;
  if (size == 0 && strategy == Strategy::kUlysses) size = ulysses;
  if (size == 0 && !grid) size = ring;
  const int32_t grid_unit = std::max(1, ulysses) * std::max(1, ring);
  const int32_t unit = size > 0 ? size : std::lcm(grid_unit, std::max(1, wanted.inner_ring_degree));
  // One rank sends no partials.
  const int32_t least = std::max(unit, wanted.bf16_partials ? 2 : 1);
  if (least > largest) return TooFewWorkers(FieldOfSize(wanted), least, largest);
  if (size > 0) return std::vector<int32_t>{size};
  for (int32_t& offered : sizes) offered = offered / unit * unit;
  sizes.erase(sizes.begin(), std::lower_bound(sizes.begin(), sizes.end(), least));
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

std::vector<Execution> EnumerateExecutions(const Execution& wanted, int32_t size,
                                           const AttentionSpec& spec) {
  std::vector<Strategy> strategies = {wanted.strategy};
  std::vector<Layout> layouts = {wanted.layout};
  // One rank owns all rows in every layout and sends nothing in any strategy.
  if (wanted.strategy == Strategy::kAuto) {
    strategies.assign(std::begin(kStrategies),
                      size == 1 ? std::begin(kStrategies) + 1 : std::end(kStrategies));
  }
  if (wanted.layout == Layout::kAuto) {
    layouts.assign(std::begin(kLayouts), size == 1 ? std::begin(kLayouts) + 1 : std::end(kLayouts));
  }
  std::vector<Execution> executions;
  for (const Strategy strategy : strategies) {
    if (wanted.bf16_partials && !SendsPartials(strategy)) continue;
    for (const Layout layout : layouts) {
      Execution open = wanted;
      open.strategy = strategy;
      open.layout = layout;
      if (layout == Layout::kStriped)
        open.stripe = wanted.stripe > 0 ? wanted.stripe : StripeOf(spec);
      for (Execution& execution : ResolveDegrees(open, size, spec.q_heads)) {
        if (wanted.strategy == Strategy::kAuto && IsTrivialGrid(execution)) continue;
        if (!FoldsInOrder(spec, strategy, execution.ulysses_degree)) continue;
        executions.push_back(std::move(execution));
      }
    }
  }
  return executions;
}

std::vector<RejectedExecutions> ExplainRejected(const Execution& wanted,
                                                const AttentionSpec& spec) {
  std::vector<RejectedExecutions> aside;
  Execution narrower = wanted;
  if (wanted.strategy == Strategy::kAuto) {
    narrower.strategy = Strategy::kHalo;
    aside.push_back({narrower, kHaloAside});
    narrower.strategy = Strategy::kDoubleRing;
    aside.push_back({narrower, kDoubleRingAside});
    narrower.strategy = wanted.bf16_partials ? Strategy::kRingPassQ : Strategy::kRotateKv;
  }
  if (wanted.layout == Layout::kAuto) {
    narrower.layout = Layout::kStriped;
    if (IsSoonStriped(spec)) aside.push_back({narrower, kStripedAside});
    narrower.layout = Layout::kZigzagPerSequence;
    const size_t sequences = spec.sequences.size();
    if (sequences > 1 && sequences <= kMostShownSequences)
      aside.push_back({narrower, kPerSequenceAside});
  }
  const auto refused = [&](const RejectedExecutions& one) {
    return !Validate(spec, one.wanted, Limits()).ok();
  };
  aside.erase(std::remove_if(aside.begin(), aside.end(), refused), aside.end());
  return aside;
}

std::vector<std::string> OptionsThatExclude(const Execution& wanted,
                                            const std::vector<int32_t>& sizes,
                                            const AttentionSpec& spec) {
  std::vector<std::string> excluding, all;
  for (const Option& option : kOptions) {
    Execution without = wanted;
    if (!option.take(&without)) continue;
    all.push_back(option.name);
    if (LeavesWays(without, sizes, spec)) excluding.push_back(option.name);
  }
  return excluding.size() > 1 ? excluding : all;
}

}  // namespace annulus

#include "attention/spec/parallel_degrees.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "attention/spec/limits.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace annulus {
namespace {

absl::Status Refuse(absl::string_view field, int64_t value, absl::string_view must) {
  return RefuseValue("INVALID_EXECUTION", absl::StrCat("execution.", field), value, must);
}

absl::Status Unresolved(absl::string_view field) {
  return InvalidField("INVALID_EXECUTION", absl::StrCat("execution.", field),
                      "must be resolved before a schedule is made");
}

bool ExchangesHeads(Strategy strategy) {
  return strategy == Strategy::kUlysses || strategy == Strategy::kUlyssesRing;
}

absl::Status CheckStrategy(const Execution& execution) {
  const std::string name(StrategyName(execution.strategy));
  const bool open = execution.strategy == Strategy::kAuto;
  const bool exchanges = open || ExchangesHeads(execution.strategy);
  if (!exchanges && execution.ulysses_degree > 1) {
    return Refuse("ulysses_degree", execution.ulysses_degree,
                  absl::StrCat(name, " does not exchange heads"));
  }
  if (!exchanges && execution.head_deal != HeadAssignment::kAuto) {
    return RefuseValue("INVALID_EXECUTION", "execution.head_deal",
                       HeadDealName(execution.head_deal),
                       absl::StrCat(name, " does not exchange heads"));
  }
  if (execution.strategy == Strategy::kUlysses && execution.ring_degree > 1) {
    return Refuse("ring_degree", execution.ring_degree, "ulysses has no ring");
  }
  if (execution.strategy != Strategy::kDoubleRing && execution.inner_ring_degree != 0) {
    return Refuse("inner_ring_degree", execution.inner_ring_degree,
                  "only double-ring has inner rings");
  }
  return absl::OkStatus();
}

absl::Status CheckDivides(absl::string_view field, int32_t degree, int32_t world_size) {
  if (degree == 0 || world_size % degree == 0) return absl::OkStatus();
  return Refuse(field, degree, absl::StrCat("must divide execution.world_size, ", world_size));
}

bool Fits(int32_t wanted, int32_t value) { return wanted == 0 || wanted == value; }

// The divisors of a number. Leaves out 1 and the number itself if there are others, because a
// request for a grid or a double ring of open shape should get one.
std::vector<int32_t> ShapesOf(int32_t number) {
  std::vector<int32_t> divisors;
  for (int32_t d = 2; d < number; ++d) {
    if (number % d == 0) divisors.push_back(d);
  }
  if (!divisors.empty()) return divisors;
  return number == 1 ? std::vector<int32_t>{1} : std::vector<int32_t>{1, number};
}

std::vector<int32_t> UlyssesChoices(const Execution& execution, int32_t world_size) {
  if (execution.ulysses_degree != 0) return {execution.ulysses_degree};
  if (execution.ring_degree != 0) return {world_size / execution.ring_degree};
  if (execution.strategy == Strategy::kUlysses) return {world_size};
  if (execution.strategy == Strategy::kUlyssesRing) return ShapesOf(world_size);
  return {1};
}

// The squarest shape first: its inner and outer rings are both short.
std::vector<int32_t> InnerRingChoices(const Execution& execution, int32_t ring) {
  if (execution.strategy != Strategy::kDoubleRing) return {0};
  if (execution.inner_ring_degree != 0) return {execution.inner_ring_degree};
  std::vector<int32_t> choices = ShapesOf(ring);
  const auto skew = [&](int32_t inner) { return std::max(inner, ring / inner); };
  std::stable_sort(choices.begin(), choices.end(),
                   [&](int32_t a, int32_t b) { return skew(a) < skew(b); });
  return choices;
}

std::vector<HeadAssignment> DealChoices(const Execution& execution, int32_t ulysses,
                                        int32_t q_heads) {
  if (execution.head_deal != HeadAssignment::kAuto || ulysses == 1) return {execution.head_deal};
  if (q_heads % ulysses == 0) return {HeadAssignment::kWholeHeads};
  return {HeadAssignment::kWholeHeads, HeadAssignment::kUnits};
}

}  // namespace

bool SharesKeyHeads(const AttentionSpec& spec, int32_t ulysses) {
  return spec.operation == Operation::kGradients && spec.kv_heads % ulysses != 0;
}

bool SharesBiasGradient(const AttentionSpec& spec, int32_t ulysses) {
  return spec.operation == Operation::kGradients && spec.gradients.d_bias && ulysses > 1 &&
         spec.modifiers.bias && spec.modifiers.bias->heads == 1;
}

absl::Status CheckDegrees(const Execution& execution) {
  RETURN_IF_ERROR(CheckStrategy(execution));
  const int32_t world = execution.world_size;
  const int32_t ulysses = execution.ulysses_degree, ring = execution.ring_degree;
  const int32_t inner = execution.inner_ring_degree;
  if (inner != 0 && ring % inner != 0) {
    return Refuse("inner_ring_degree", inner,
                  absl::StrCat("must divide execution.ring_degree, ", ring));
  }
  if (world == 0) return absl::OkStatus();
  RETURN_IF_ERROR(CheckDivides("ulysses_degree", ulysses, world));
  RETURN_IF_ERROR(CheckDivides("ring_degree", ring, world));
  RETURN_IF_ERROR(CheckDivides("inner_ring_degree", inner, world));
  if (ulysses != 0 && ring != 0 && int64_t{ulysses} * ring != world) {
    return Refuse("ring_degree", ring,
                  absl::StrCat("execution.ulysses_degree, ", ulysses,
                               ", times it must be execution.world_size, ", world));
  }
  if (execution.strategy == Strategy::kAuto) return absl::OkStatus();
  const std::string name(StrategyName(execution.strategy));
  if (execution.strategy == Strategy::kUlysses && !Fits(ulysses, world)) {
    return Refuse("ulysses_degree", ulysses,
                  absl::StrCat("all ", world, " ranks of ", name, " exchange heads"));
  }
  if (!ExchangesHeads(execution.strategy) && !Fits(ring, world)) {
    return Refuse("ring_degree", ring,
                  absl::StrCat("all ", world, " ranks of ", name, " are one ring"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ParallelDegrees> ParallelDegreesOf(const Execution& execution, int32_t world_size) {
  Execution sized = execution;
  sized.world_size = world_size;
  RETURN_IF_ERROR(CheckDegrees(sized));
  if (execution.strategy == Strategy::kUlyssesRing && world_size > 1 &&
      execution.ulysses_degree == 0 && execution.ring_degree == 0) {
    return Unresolved("ulysses_degree");
  }
  ParallelDegrees degrees;
  degrees.ulysses = UlyssesChoices(execution, world_size)[0];
  degrees.ring = world_size / degrees.ulysses;
  degrees.inner_ring = degrees.ring;
  if (execution.strategy == Strategy::kDoubleRing && degrees.ring > 1) {
    if (execution.inner_ring_degree == 0) return Unresolved("inner_ring_degree");
    degrees.inner_ring = execution.inner_ring_degree;
  }
  if (degrees.ulysses > 1 && execution.head_deal == HeadAssignment::kAuto) {
    return Unresolved("head_deal");
  }
  if (execution.head_deal != HeadAssignment::kAuto) degrees.deal = execution.head_deal;
  return degrees;
}

std::vector<Execution> ResolveDegrees(const Execution& execution, int32_t world_size,
                                      int32_t q_heads) {
  Execution sized = execution;
  sized.world_size = world_size;
  if (!CheckDegrees(sized).ok()) return {};
  std::vector<Execution> resolved;
  for (const int32_t ulysses : UlyssesChoices(execution, world_size)) {
    const int32_t ring = world_size / ulysses;
    for (const int32_t inner : InnerRingChoices(execution, ring)) {
      for (const HeadAssignment deal : DealChoices(execution, ulysses, q_heads)) {
        sized.ulysses_degree = ulysses;
        sized.ring_degree = ring;
        sized.inner_ring_degree = inner;
        sized.head_deal = deal;
        resolved.push_back(sized);
      }
    }
  }
  return resolved;
}

}  // namespace annulus

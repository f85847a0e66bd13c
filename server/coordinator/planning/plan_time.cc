#include "server/coordinator/planning/plan_time.h"

#include <algorithm>
#include <cstdint>

#include "attention/mask/mask_cost.h"
#include "server/coordinator/state/plan_shape.h"

namespace annulus {
namespace {

constexpr double kMostParts = 10000;

// Measured microseconds. Pieces of chunks take less since equal pieces are counted once
// (attention/mask/mask_rule.h).
constexpr double kSequenceAlone = 0.5;  // For one rank,
constexpr double kPieceAlone = 0.2;     // because its steps are not cut.
constexpr double kPairOfRanks = 60;     // All executions of a small job.
constexpr double kSequence = 4;
constexpr double kPairOfClasses = 3;
constexpr double kPart = 1;  // For a cut step, for each class of heads,
constexpr double kPieceOfPart = 0.5;
constexpr double kMeeting = 12;     // For two ranks of the striped layout,
constexpr double kCutSequence = 4;  // for each sequence of zigzag-per-sequence.

// Predicted time of the job on one worker.
double SecondsOf(const PlanRequest& request) {
  const PlanShape& shape = request.submission->shape;
  return SecondsOf({shape.pairs, shape.rows, shape.keys}, request.rates.kernel());
}

// The number of ranks of the largest group that planning considers.
double MostRanks(const PlanRequest& request) {
  const Execution& wanted = request.execution;
  if (wanted.world_size > 0) return wanted.world_size;
  if (wanted.ulysses_degree > 0 && wanted.ring_degree > 0) {
    return static_cast<double>(wanted.ulysses_degree) * wanted.ring_degree;
  }
  if (request.sizes.empty()) return 1;
  // Groups are ignored if their fixed cost exceeds the work. Half of the cost, because one worker
  // may have shown that it takes longer than predicted.
  const bool may_be_one = request.sizes.front() == 1 && !wanted.bf16_partials &&
                          wanted.ulysses_degree <= 1 && wanted.ring_degree <= 1 &&
                          wanted.inner_ring_degree <= 1;
  const double fixed = request.ways.Least() * request.rates.job_seconds;
  if (may_be_one && !request.count_all && SecondsOf(request) < fixed / 2) return 1;
  return request.sizes.back();
}

}  // namespace

absl::Duration PlanTime(const PlanRequest& request) {
  const PlanShape& shape = request.submission->shape;
  const double ranks = MostRanks(request);
  const auto followed = static_cast<double>(shape.followed);
  const auto pieces = static_cast<double>(shape.pieces);
  if (ranks <= 1) return absl::Microseconds(kSequenceAlone * followed + kPieceAlone * pieces);
  const auto classes = static_cast<double>(shape.classes);
  const double target = absl::ToDoubleSeconds(request.segment_target);
  const double parts = std::min(kMostParts, SecondsOf(request) / ranks / target);
  double time = kPairOfRanks * ranks * ranks + kSequence * followed +
                kPairOfClasses * classes * classes + kPart * classes * parts +
                kPieceOfPart * pieces * (1 + parts);
  if (request.execution.layout == Layout::kStriped) {
    const double meetings = (followed + static_cast<double>(shape.spans)) * ranks * ranks;
    time += kMeeting * std::min(meetings, static_cast<double>(kMaxStripedMeetings));
  }
  if (request.execution.layout == Layout::kZigzagPerSequence)
    time += kCutSequence * followed * ranks * ranks;
  return absl::Microseconds(time);
}

}  // namespace annulus

#include "attention/cost_model.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "attention/block_layout.h"
#include "attention/capability.h"
#include "attention/degrees.h"
#include "attention/error.h"
#include "attention/mask.h"
#include "attention/placement.h"
#include "attention/schedule/fix_order.h"
#include "attention/schedule/plan_memo.h"
#include "attention/segment.h"
#include "attention/status_macros.h"

namespace annulus {
namespace {

// What auto chooses from, best first where predictions tie. Rotate before ring: on a network where
// all links are alike it sends no more and never waits for a neighbour. Halo is all-gather by
// another name, and a double ring sends what a ring sends in as many steps: it is for networks
// whose links differ, which this model does not know. Striped shards are left to who asks for them:
// nearly every tile of theirs is a boundary tile, which the kernel pays for and this model does not
// see. Shards by area are looked at where the others leave some rank more work than the rest.
constexpr Strategy kStrategies[] = {
    Strategy::kRotateKv,    Strategy::kRingPassKv, Strategy::kAllGatherKv, Strategy::kUlysses,
    Strategy::kUlyssesRing, Strategy::kTree,       Strategy::kRingPassQ};
constexpr Layout kLayouts[] = {Layout::kContiguous, Layout::kZigzag};

int64_t BytesOf(const RankSchedule& schedule, const Transfer& transfer, const BlockLayout& layout) {
  const Block& block = schedule.buffers[transfer.buffer];
  return (transfer.row_end - transfer.row_begin) *
         layout.RowBytes(block.kind, block.head_end - block.head_begin);
}

// In larger groups a schedule takes long to make: one that is this close to evenly shared work is
// taken without a look at the others.
constexpr int32_t kThoroughSize = 16;
constexpr double kCloseEnough = 1.01;
// A layout whose busiest rank has less than this times the mean needs no other.
constexpr double kCloseToEven = 1.03;

int64_t TransferBytes(const RankSchedule& schedule, const std::vector<Transfer>& transfers,
                      const BlockLayout& layout) {
  int64_t bytes = 0;
  for (const Transfer& transfer : transfers) bytes += BytesOf(schedule, transfer, layout);
  return bytes;
}

struct RankCost {
  double seconds = 0;
  int64_t bytes_sent = 0;
  int64_t visible_pairs = 0;
};

// Two products for a forward pass, five for gradients.
double FlopsPerPair(const AttentionSpec& spec) {
  if (spec.operation == Operation::kForward) return 2.0 * (spec.head_dim + spec.value_dim());
  return 2.0 * (3.0 * spec.head_dim + 2.0 * spec.value_dim());
}

// 2·head_dim + 2·value_dim at 128.
constexpr double kMeasuredFlopsPerPair = 512;

double SecondsOfStep(int64_t pairs, int64_t rows, int64_t sent, int64_t received,
                     const AttentionSpec& spec, const Rates& rates) {
  // flops_per_second counts all of a pair's time at the dimensions that it was measured at.
  const double flop_seconds =
      std::max(0.0, 1 / rates.flops_per_second - rates.pair_seconds / kMeasuredFlopsPerPair);
  const double pair_seconds = rates.pair_seconds + flop_seconds * FlopsPerPair(spec);
  const double tasks =
      static_cast<double>(pairs) * pair_seconds + static_cast<double>(rows) * rates.row_seconds;
  const double wire = static_cast<double>(std::max(sent, received)) / rates.link_bytes_per_second;
  const double fixed = sent + received > 0 ? rates.step_seconds : 0;
  return std::max(tasks, wire) + rates.overlap_loss * std::min(tasks, wire) + fixed;
}

// Query rows × heads of all tasks.
int64_t TaskRows(const Step& step) {
  int64_t rows = 0;
  for (const Task& task : step.tasks) {
    rows += (task.q_end - task.q_begin) * (task.head_end - task.head_begin);
  }
  return rows;
}

RankCost CostOfRank(const RankSchedule& schedule, const ScheduleRequest& request,
                    const BlockLayout& layout, const Rates& rates) {
  const std::vector<int64_t> pairs = StepCosts(schedule, request);
  RankCost cost;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    const int64_t sent = TransferBytes(schedule, step.sends, layout);
    const int64_t received = TransferBytes(schedule, step.receives, layout);
    cost.seconds += SecondsOfStep(pairs[i], TaskRows(step), sent, received, *request.spec, rates);
    cost.bytes_sent += sent;
    cost.visible_pairs += pairs[i];
  }
  return cost;
}

// The links of a rank to others.
void AddLinks(const RankSchedule& schedule, int32_t rank, const BlockLayout& layout,
              std::vector<Link>* links) {
  std::map<int32_t, int64_t> bytes;
  for (const Step& step : schedule.steps) {
    for (const Transfer& send : step.sends) bytes[send.peer] += BytesOf(schedule, send, layout);
  }
  for (const auto& [peer, count] : bytes) {
    if (count > 0) links->push_back({rank, peer, count});
  }
}

double Balance(const std::vector<int64_t>& work) {
  const int64_t total = std::accumulate(work.begin(), work.end(), int64_t{0});
  if (total == 0) return 1;
  const double mean = static_cast<double>(total) / static_cast<double>(work.size());
  return static_cast<double>(*std::max_element(work.begin(), work.end())) / mean;
}

absl::Status TooFewWorkers(const std::string& field, int32_t wanted, int32_t largest) {
  return MakeError(
      absl::StatusCode::kFailedPrecondition,
      absl::StrCat(field, ": ", wanted, " workers are wanted and ", largest, " are ready"),
      ErrorDetail{"INSUFFICIENT_WORKERS",
                  {{"wanted", absl::StrCat(wanted)}, {"ready", absl::StrCat(largest)}},
                  {{field, "more workers than are ready"}},
                  {}});
}

absl::Status TooLarge(int64_t needed, int64_t limit) {
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   absl::StrCat("the job needs ", needed,
                                " bytes of working memory on a worker that has ", limit),
                   ErrorDetail{"INSUFFICIENT_CAPACITY",
                               {{"budget", "device"},
                                {"needed_bytes", absl::StrCat(needed)},
                                {"limit_bytes", absl::StrCat(limit)}},
                               {{"spec.sequences", "more rows than the workers can work on"}},
                               {}});
}

// The field that asks for more ranks than any.
std::string FieldOfSize(const Execution& wanted) {
  return wanted.world_size > 0       ? "execution.world_size"
         : wanted.ulysses_degree > 1 ? "execution.ulysses_degree"
                                     : "execution.ring_degree";
}

// The sizes on offer, as far as world size and degrees allow them. A group of more workers than a
// job has ranks can run it, so a size that is no multiple of the degrees is rounded down to one.
absl::StatusOr<std::vector<int32_t>> SizesFor(const Execution& wanted, std::vector<int32_t> sizes) {
  std::sort(sizes.begin(), sizes.end());
  const int32_t largest = sizes.empty() ? 0 : sizes.back();
  const int32_t ulysses = wanted.ulysses_degree, ring = wanted.ring_degree;
  const Strategy strategy = wanted.strategy;
  const bool grid = strategy == Strategy::kAuto || strategy == Strategy::kUlyssesRing;
  int32_t size = wanted.world_size;
  if (size == 0 && ulysses > 0 && ring > 0) size = ulysses * ring;
  if (size == 0 && strategy == Strategy::kUlysses) size = ulysses;
  if (size == 0 && !grid) size = ring;
  const int32_t unit = size > 0 ? size : std::max(1, ulysses) * std::max(1, ring);
  if (unit > largest) return TooFewWorkers(FieldOfSize(wanted), unit, largest);
  if (size > 0) return std::vector<int32_t>{size};
  for (int32_t& offered : sizes) offered = offered / unit * unit;
  sizes.erase(sizes.begin(), std::upper_bound(sizes.begin(), sizes.end(), 0));
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

// Grids that are a plain ring or plain Ulysses are on the list already.
bool IsTrivialGrid(const Execution& execution) {
  return execution.strategy == Strategy::kUlyssesRing &&
         (execution.ulysses_degree == 1 || execution.ring_degree == 1);
}

// All combinations that the request leaves open for one size.
std::vector<Execution> Combinations(const Execution& wanted, int32_t size,
                                    const AttentionSpec& spec) {
  std::vector<Strategy> strategies = {wanted.strategy};
  std::vector<Layout> layouts = {wanted.layout};
  // One rank owns everything in every layout and sends nothing by any strategy.
  if (wanted.strategy == Strategy::kAuto) {
    strategies.assign(std::begin(kStrategies),
                      size == 1 ? std::begin(kStrategies) + 1 : std::end(kStrategies));
  }
  if (wanted.layout == Layout::kAuto) {
    layouts.assign(std::begin(kLayouts), size == 1 ? std::begin(kLayouts) + 1 : std::end(kLayouts));
  }
  std::vector<Execution> executions;
  for (const Strategy strategy : strategies) {
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

class Chooser {
 public:
  Chooser(const AttentionSpec& spec, const Execution& wanted, const Choice& choice)
      : spec_(spec), wanted_(wanted), choice_(choice), mask_(spec) {}

  absl::StatusOr<std::vector<Candidate>> Choose() {
    ASSIGN_OR_RETURN(const std::vector<int32_t> sizes, SizesFor(wanted_, choice_.sizes));
    for (const int32_t size : sizes) {
      cases_.clear();
      const size_t first = candidates_.size();
      for (Execution& execution : Combinations(wanted_, size, spec_)) {
        RETURN_IF_ERROR(Consider(std::move(execution)));
      }
      if (!Uneven(first)) continue;
      Execution by_area = wanted_;
      by_area.layout = Layout::kByArea;
      for (Execution& execution : Combinations(by_area, size, spec_)) {
        RETURN_IF_ERROR(Consider(std::move(execution)));
      }
    }
    if (best_ < 0 && candidates_.empty()) return NoWay(sizes);
    if (best_ < 0) return TooLarge(smallest_peak_, choice_.max_peak_bytes);
    return Sorted();
  }

 private:
  absl::Status Consider(Execution execution) {
    Candidate candidate;
    candidate.execution = std::move(execution);
    const int32_t size = candidate.execution.world_size;
    const double bound = work_seconds_ / size + choice_.rates.job_seconds;
    const double even = shared_seconds_ / size + choice_.rates.job_seconds;
    if (size > 1 && best_ >= 0 && bound >= BestSeconds()) {
      candidate.cost.seconds = bound;
      candidate.rejected = "its fixed cost is more than sharing the work can save";
    } else if (size > kThoroughSize && best_ >= 0 && BestSeconds() <= kCloseEnough * even) {
      candidate.cost.seconds = even;
      candidate.rejected = "the one taken is as good as evenly shared work";
    } else {
      RETURN_IF_ERROR(Evaluate(&candidate));
    }
    candidates_.push_back(std::move(candidate));
    const Candidate& last = candidates_.back();
    if (last.rejected.empty() && (best_ < 0 || last.cost.seconds < BestSeconds())) {
      best_ = static_cast<int>(candidates_.size()) - 1;
    }
    return absl::OkStatus();
  }

  // Ways that there would be, were the job not deterministic, are not served.
  absl::Status NoWay(const std::vector<int32_t>& sizes) const {
    AttentionSpec free = spec_;
    free.deterministic = false;
    for (const int32_t size : sizes) {
      for (const auto& way : Combinations(wanted_, size, free))
        RETURN_IF_ERROR(CheckServed(spec_, way));
    }
    return InvalidField("INVALID_EXECUTION", "execution", "degrees or head deal that no way has");
  }

  // Whether a layout that is left open is worth a look at shards by area: all candidates from
  // `first` on leave some rank more work than the rest.
  bool Uneven(size_t first) const {
    if (wanted_.layout != Layout::kAuto || candidates_.size() == first) return false;
    const auto even = [](const Candidate& candidate) {
      const int32_t size = candidate.execution.world_size;
      return size == 1 || size > kThoroughSize || candidate.cost.visible_pairs.empty() ||
             candidate.cost.balance < kCloseToEven;
    };
    return std::none_of(candidates_.begin() + static_cast<int64_t>(first), candidates_.end(), even);
  }

  absl::Status Evaluate(Candidate* candidate) {
    const Execution& execution = candidate->execution;
    PlanOptions options;
    options.world_size = execution.world_size;
    options.layout = execution.layout;
    options.stripe = std::max(1, execution.stripe);
    options.granule = GranuleOf(spec_);
    ASSIGN_OR_RETURN(PlanCase * of, CaseOf(options));
    ASSIGN_OR_RETURN(
        candidate->cost,
        PredictCost({&spec_, &mask_, &of->plan, execution, &*of->memo}, choice_.rates));
    if (execution.world_size == 1) work_seconds_ = candidate->cost.seconds;
    if (shared_seconds_ == 0) shared_seconds_ = SecondsOfWork(candidate->cost);
    const int64_t peak = candidate->cost.peak_bytes_per_rank;
    smallest_peak_ = std::min(smallest_peak_, peak);
    if (peak > choice_.max_peak_bytes) {
      candidate->rejected = absl::StrCat("it needs ", peak, " bytes of working memory on a rank");
    }
    return absl::OkStatus();
  }

  // A plan, and what all strategies on it have in common.
  struct PlanCase {
    ShardPlan plan;
    std::optional<PlanMemo> memo;
  };
  absl::StatusOr<PlanCase*> CaseOf(const PlanOptions& options) {
    std::unique_ptr<PlanCase>& of = cases_[{options.layout, options.stripe}];
    if (of != nullptr) return of.get();
    auto made = std::make_unique<PlanCase>();
    ASSIGN_OR_RETURN(made->plan, MakeShardPlan(spec_, options));
    made->memo.emplace(ScheduleRequest{&spec_, &mask_, &made->plan, {}});
    return (of = std::move(made)).get();
  }

  double BestSeconds() const { return candidates_[best_].cost.seconds; }

  // Of one rank that does all of it.
  double SecondsOfWork(const Cost& cost) const {
    return SecondsOfStep(
        std::accumulate(cost.visible_pairs.begin(), cost.visible_pairs.end(), int64_t{0}), 0, 0, 0,
        spec_, choice_.rates);
  }

  std::vector<Candidate> Sorted() {
    const double best = BestSeconds();
    for (size_t i = 0; i < candidates_.size(); ++i) {
      Candidate& candidate = candidates_[i];
      if (static_cast<int>(i) == best_ || !candidate.rejected.empty()) continue;
      const double ratio = best > 0 ? candidate.cost.seconds / best : 1;
      candidate.rejected = ratio <= 1
                               ? "predicted to be no faster than the one taken"
                               : absl::StrFormat("predicted to take %.3g times as long", ratio);
    }
    std::rotate(candidates_.begin(), candidates_.begin() + best_, candidates_.begin() + best_ + 1);
    return std::move(candidates_);
  }

  const AttentionSpec& spec_;
  const Execution& wanted_;
  const Choice& choice_;
  const MaskMap mask_;
  std::vector<Candidate> candidates_;
  // Of the size that is looked at, by layout and stripe.
  std::map<std::pair<Layout, int64_t>, std::unique_ptr<PlanCase>> cases_;
  int best_ = -1;
  double work_seconds_ = 0;    // Of one rank; 0 while it is not known, which rules nothing out.
  double shared_seconds_ = 0;  // The same, by the pairs of any candidate.
  int64_t smallest_peak_ = std::numeric_limits<int64_t>::max();
};

}  // namespace

std::vector<double> StepSeconds(const RankSchedule& schedule, const ScheduleRequest& request,
                                const Rates& rates) {
  const BlockLayout layout(*request.spec);
  const std::vector<int64_t> pairs = StepCosts(schedule, request);
  std::vector<double> seconds;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    seconds.push_back(
        SecondsOfStep(pairs[i], TaskRows(step), TransferBytes(schedule, step.sends, layout),
                      TransferBytes(schedule, step.receives, layout), *request.spec, rates));
  }
  return seconds;
}

absl::StatusOr<Cost> PredictCost(const ScheduleRequest& request, const Rates& rates) {
  ASSIGN_OR_RETURN(const std::vector<RankSchedule> ranks, MakeGroupSchedules(request));
  const BlockLayout layout(*request.spec);
  Cost cost;
  for (const RankSchedule& schedule : ranks) {
    const RankCost rank = CostOfRank(schedule, request, layout, rates);
    cost.seconds = std::max(cost.seconds, rank.seconds);
    AddLinks(schedule, static_cast<int32_t>(cost.bytes_sent.size()), layout, &cost.links);
    cost.bytes_sent.push_back(rank.bytes_sent);
    cost.visible_pairs.push_back(rank.visible_pairs);
    cost.peak_bytes_per_rank =
        std::max(cost.peak_bytes_per_rank, PlaceBuffers(schedule, layout).arena_bytes);
  }
  if (ranks.size() > 1) cost.seconds += rates.job_seconds;
  cost.balance = Balance(cost.visible_pairs);
  return cost;
}

absl::StatusOr<std::vector<Candidate>> ChooseExecution(const AttentionSpec& spec,
                                                       const Execution& wanted,
                                                       const Choice& choice) {
  return Chooser(spec, wanted, choice).Choose();
}

}  // namespace annulus

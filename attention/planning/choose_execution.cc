#include "attention/planning/choose_execution.h"

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
#include "absl/strings/str_join.h"
#include "attention/mask/mask.h"
#include "attention/mask/mask_cost.h"
#include "attention/mask/mask_groups.h"
#include "attention/planning/candidate_plans.h"
#include "attention/schedule/model/plan_memo.h"
#include "attention/schedule/schedule.h"
#include "attention/spec/limits.h"
#include "attention/validate/capability.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace annulus {
namespace {

// In larger groups, evaluating an execution takes long, in proportion to the square of the group's
// size. kLookSeconds is about the time per pair of ranks, between the least measured (4 us for
// ring-pass-kv) and the most (30 us for ulysses).
constexpr int32_t kThoroughSize = 16;
constexpr double kLookSeconds = 1e-5;
// Shards by area have many runs of rows and take long in any group.
constexpr double kAreaLookSeconds = 4e-5;
// Predictions err by more than this, and byte counts do not err.
constexpr double kAlike = 1.08;
// Above this, showing striped shards, which auto never chooses, takes more than about 10 ms.
constexpr int64_t kMostShownMeetings = 1024;
// With less imbalance than this, other layouts are not evaluated.
constexpr double kCloseToEven = 1.03;

constexpr char kTakesLong[] = "looking at it would take longer than it could save";
constexpr char kCannotSave[] = "its fixed cost is more than sharing the work can save";
// Marks costs from a bound, so that 0 bytes are not taken for a prediction.
constexpr char kNotCounted[] = ": the time is this bound, bytes were not counted";

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

class Chooser {
 public:
  Chooser(const AttentionSpec& spec, const Execution& wanted, const Choice& choice)
      : spec_(spec),
        wanted_(wanted),
        choice_(choice),
        mask_(spec),
        groups_(spec),
        least_(choice.shown == nullptr ? 1 : choice.shown->Least()) {}

  absl::StatusOr<std::vector<Candidate>> Choose() {
    ASSIGN_OR_RETURN(const std::vector<int32_t> sizes, EnumerateWorldSizes(wanted_, choice_.sizes));
    for (const int32_t size : sizes) {
      cases_.clear();
      const size_t first = candidates_.size();
      for (Execution& execution : EnumerateExecutions(wanted_, size, spec_)) {
        RETURN_IF_ERROR(Consider(std::move(execution)));
      }
      if (!Uneven(first)) continue;
      Execution by_area = wanted_;
      by_area.layout = Layout::kByArea;
      for (Execution& execution : EnumerateExecutions(by_area, size, spec_)) {
        if (!AsEvenInAnyLayout(execution)) RETURN_IF_ERROR(Consider(std::move(execution)));
      }
    }
    if (best_ < 0 && candidates_.empty()) return NoWay(sizes);
    if (best_ < 0 && !over_limit_.ok() && smallest_peak_ == kNone) return over_limit_;
    if (best_ < 0) return TooLarge(smallest_peak_, choice_.max_peak_bytes);
    if (choice_.count_all) RETURN_IF_ERROR(ShowLeftAside(sizes));
    return Sorted();
  }

 private:
  absl::Status Consider(Execution execution) {
    Candidate candidate;
    candidate.execution = std::move(execution);
    const int32_t size = candidate.execution.world_size;
    const double bound = BoundOf(size);
    const double even = least_ * (shared_seconds_ / size + choice_.rates.job_seconds);
    const double look = best_ >= 0 ? LookSeconds(candidate.execution) : 0;
    const bool cannot_save = size > 1 && best_ >= 0 && bound >= BestSeconds();
    const bool takes_long = look > 0 && looked_seconds_ + look > MostToSave(even);
    const char* const why_not = cannot_save ? kCannotSave : takes_long ? kTakesLong : nullptr;
    if (why_not != nullptr && (!choice_.count_all || size > kThoroughSize)) {
      candidate.cost.seconds = candidate.cost.expected_seconds = cannot_save ? bound : even;
      candidate.rejected = absl::StrCat(why_not, kNotCounted);
    } else {
      if (why_not == nullptr) looked_seconds_ += look;
      RETURN_IF_ERROR(EvaluateWithinLimits(bound, &candidate));
      if (why_not != nullptr && candidate.rejected.empty()) candidate.rejected = why_not;
    }
    candidates_.push_back(std::move(candidate));
    const Candidate& last = candidates_.back();
    if (last.rejected.empty() && (best_ < 0 || last.cost.expected_seconds < BestSeconds())) {
      best_ = static_cast<int>(candidates_.size()) - 1;
    }
    return absl::OkStatus();
  }

  // The time to evaluate an execution; 0 if it is negligible.
  double LookSeconds(const Execution& execution) const {
    const double pairs = static_cast<double>(execution.world_size) * execution.world_size;
    if (execution.world_size > kThoroughSize) return kLookSeconds * pairs;
    const bool unasked = execution.layout == Layout::kByArea && wanted_.layout == Layout::kAuto;
    return unasked ? kAreaLookSeconds * pairs : 0;
  }

  // The least time that a group of this size takes.
  double BoundOf(int32_t size) const {
    return least_ * (work_seconds_ / size + choice_.rates.job_seconds);
  }

  // True for executions that are not shown even with count_all: a double ring that is a plain ring,
  // and striped shards that take long to plan.
  bool IsHardlyShown(const Execution& execution) const {
    const int32_t inner = execution.inner_ring_degree;
    if (execution.strategy == Strategy::kDoubleRing)
      return inner == 1 || inner == execution.ring_degree;
    return execution.layout == Layout::kStriped &&
           StripedMeetings(spec_, groups_, execution.stripe, execution.world_size) >
               kMostShownMeetings;
  }

  // With count_all: adds the executions that auto never chooses, with their costs.
  absl::Status ShowLeftAside(const std::vector<int32_t>& sizes) {
    const std::vector<RejectedExecutions> all = ExplainRejected(wanted_, spec_);
    for (const int32_t size : sizes) {
      if (size == 1 || size > kThoroughSize) continue;
      cases_.clear();
      for (const RejectedExecutions& aside : all) {
        for (Execution& execution : EnumerateExecutions(aside.wanted, size, spec_)) {
          Candidate candidate;
          candidate.execution = std::move(execution);
          if (IsHardlyShown(candidate.execution)) continue;
          RETURN_IF_ERROR(EvaluateWithinLimits(BoundOf(size), &candidate));
          if (candidate.rejected.empty()) candidate.rejected = aside.why;
          candidates_.push_back(std::move(candidate));
        }
      }
    }
    return absl::OkStatus();
  }

  // An execution that exists if the job is not deterministic is not served.
  absl::Status NoWay(const std::vector<int32_t>& sizes) const {
    AttentionSpec free = spec_;
    free.deterministic = false;
    for (const int32_t size : sizes) {
      for (const auto& way : EnumerateExecutions(wanted_, size, free))
        RETURN_IF_ERROR(CheckServed(spec_, way));
    }
    const std::vector<std::string> options = OptionsThatExclude(wanted_, choice_.sizes, spec_);
    return InvalidField(
        "INVALID_EXECUTION", "execution",
        absl::StrCat("no way to run the job fits ", absl::StrJoin(options, " and ")));
  }

  // True if each rank has some heads of all rows.
  static bool AsEvenInAnyLayout(const Execution& execution) {
    return execution.ring_degree == 1 && execution.head_deal != HeadAssignment::kUnits;
  }

  // True if shards by area are worth evaluating: the layout is open, and the candidates from
  // `first` on leave the work of some rank too large. The more ranks exchange heads, the less the
  // layout matters, so only candidates with the smallest exchange count.
  bool Uneven(size_t first) const {
    if (wanted_.layout != Layout::kAuto) return false;
    int32_t fewest = std::numeric_limits<int32_t>::max();
    bool uneven = false;
    for (size_t i = first; i < candidates_.size(); ++i) {
      const Execution& execution = candidates_[i].execution;
      const Cost& cost = candidates_[i].cost;
      if (execution.world_size > kThoroughSize || AsEvenInAnyLayout(execution)) continue;
      if (cost.visible_pairs.empty() || cost.peak_bytes_per_rank > choice_.max_peak_bytes) continue;
      if (execution.ulysses_degree > fewest) continue;
      if (execution.ulysses_degree < fewest) uneven = true;
      fewest = execution.ulysses_degree;
      uneven = uneven && cost.balance >= kCloseToEven;
    }
    return uneven;
  }

  // An execution above a limit of planning is rejected; it takes at least `bound` seconds.
  absl::Status EvaluateWithinLimits(double bound, Candidate* candidate) {
    const absl::Status layout = CheckLayout(candidate->execution);
    const absl::Status status = layout.ok() ? Evaluate(candidate) : layout;
    const ErrorDetail detail = DetailOf(status);
    if (detail.reason != "LIMIT_EXCEEDED") return status;
    const std::string &count = detail.metadata.at("requested"),
                      &limit = detail.metadata.at("limit");
    const char* const what = layout.ok() ? " tasks in a fixed order"
                             : candidate->execution.layout == Layout::kStriped
                                 ? " meetings of striped ranks"
                                 : " cuts of sequences";
    candidate->cost.seconds = candidate->cost.expected_seconds = bound;
    candidate->rejected =
        absl::StrCat("it has ", count, what, ", above the limit of ", limit, kNotCounted);
    if (over_limit_.ok()) over_limit_ = layout.ok() ? TooManyTasks(detail) : layout;
    return absl::OkStatus();
  }

  // Names the field that narrows the choice, as another value may need fewer tasks.
  absl::Status TooManyTasks(ErrorDetail detail) const {
    std::string& field = detail.fields.at(0).field;
    if (wanted_.layout != Layout::kAuto) field = "execution.layout";
    if (wanted_.strategy != Strategy::kAuto) field = "execution.strategy";
    return MakeError(absl::StatusCode::kInvalidArgument,
                     absl::StrCat(field, ": ", detail.fields[0].description), detail);
  }

  absl::Status CheckLayout(const Execution& execution) {
    if (execution.layout == Layout::kZigzagPerSequence) {
      const auto sequences = static_cast<int64_t>(spec_.sequences.size());
      return CheckLimit("execution.layout", sequences * execution.world_size, kMaxSequenceCuts);
    }
    if (execution.layout != Layout::kStriped) return absl::OkStatus();
    return CheckLimit("execution.layout",
                      StripedMeetings(spec_, groups_, execution.stripe, execution.world_size),
                      kMaxStripedMeetings);
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
    if (choice_.shown != nullptr)
      candidate->cost.expected_seconds *= choice_.shown->FactorOf(
          execution, spec_.operation, candidate->cost.seconds, choice_.pace);
    if (execution.world_size == 1) work_seconds_ = candidate->cost.seconds;
    if (shared_seconds_ == 0) shared_seconds_ = SecondsOfWork(candidate->cost);
    const int64_t peak = candidate->cost.peak_bytes_per_rank;
    smallest_peak_ = std::min(smallest_peak_, peak);
    if (peak > choice_.max_peak_bytes) {
      candidate->rejected = absl::StrCat("it needs ", peak, " bytes of working memory on a rank");
    }
    return absl::OkStatus();
  }

  // A plan and the cache that all strategies on it share.
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

  double BestSeconds() const { return candidates_[best_].cost.expected_seconds; }

  // The most that another execution can save compared with the best so far: its time above evenly
  // shared work, and its link time.
  double MostToSave(double even) const {
    const std::vector<int64_t>& sent = candidates_[best_].cost.bytes_sent;
    const auto most = static_cast<double>(*std::max_element(sent.begin(), sent.end()));
    return BestSeconds() - even + most / choice_.rates.link_bytes_per_second;
  }

  // The time of one rank that does all the work, without the cost per row. Each rank may read all
  // keys.
  double SecondsOfWork(const Cost& cost) const {
    const auto sum = [](const std::vector<int64_t>& of) {
      return static_cast<double>(std::accumulate(of.begin(), of.end(), int64_t{0}));
    };
    const auto ranks = static_cast<double>(cost.task_keys.size());
    return SecondsOf({sum(cost.visible_pairs), 0, sum(cost.task_keys) / ranks},
                     choice_.rates.kernel());
  }

  static int64_t BytesOf(const Cost& cost) {
    return std::accumulate(cost.bytes_sent.begin(), cost.bytes_sent.end(), int64_t{0});
  }

  size_t Taken() const {
    size_t taken = best_;
    const auto less = [](const Cost& a, const Cost& b) {
      return std::make_pair(BytesOf(a), a.expected_seconds) <
             std::make_pair(BytesOf(b), b.expected_seconds);
    };
    for (size_t i = 0; i < candidates_.size(); ++i) {
      const Candidate& candidate = candidates_[i];
      if (!candidate.rejected.empty() || candidate.cost.expected_seconds > kAlike * BestSeconds())
        continue;
      if (less(candidate.cost, candidates_[taken].cost)) taken = i;
    }
    return taken;
  }

  std::vector<Candidate> Sorted() {
    const size_t taken = Taken();
    const double best = candidates_[taken].cost.expected_seconds;
    for (size_t i = 0; i < candidates_.size(); ++i) {
      Candidate& candidate = candidates_[i];
      if (i == taken || !candidate.rejected.empty()) continue;
      candidate.rejected = WhyNotTaken(best > 0 ? candidate.cost.expected_seconds / best : 1);
    }
    const auto first = candidates_.begin() + static_cast<int64_t>(taken);
    std::rotate(candidates_.begin(), first, first + 1);
    return std::move(candidates_);
  }

  const AttentionSpec& spec_;
  const Execution& wanted_;
  const Choice& choice_;
  const MaskMap mask_;
  const MaskGroups groups_;
  const double least_;  // The lowest factor of any prediction.
  std::vector<Candidate> candidates_;
  // For the current size, by layout and stripe.
  std::map<std::pair<Layout, int64_t>, std::unique_ptr<PlanCase>> cases_;
  int best_ = -1;
  double work_seconds_ = 0;    // Time of one rank; 0 while unknown, which rules nothing out.
  double shared_seconds_ = 0;  // The same from the pairs of any candidate.
  double looked_seconds_ = 0;  // Time spent on evaluations that are limited by MostToSave.
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  int64_t smallest_peak_ = kNone;
  absl::Status over_limit_;  // The first error of an execution above a limit.
};

}  // namespace

std::string WhyNotTaken(double ratio) {
  const double more = (ratio - 1) * 100;  // Percent.
  if (more >= 10) return absl::StrFormat("predicted to take %.3g times as long", ratio);
  if (more >= 0.01) return absl::StrFormat("predicted to take %.2g %% longer", more);
  return ratio >= 1 ? "predicted to be no faster than the one taken"
                    : "sends more, and is predicted to be hardly faster";
}

absl::StatusOr<std::vector<Candidate>> ChooseExecution(const AttentionSpec& spec,
                                                       const Execution& wanted,
                                                       const Choice& choice) {
  return Chooser(spec, wanted, choice).Choose();
}

}  // namespace annulus

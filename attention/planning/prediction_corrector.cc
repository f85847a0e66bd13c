#include "attention/planning/prediction_corrector.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace annulus {
namespace {

// A single run may have been delayed.
constexpr size_t kLeastRuns = 3;
// auto does not run what it does not choose. So old runs expire, or one bad hour would rule out a
// way forever.
constexpr int64_t kForgotten = 1024;
constexpr double kMostFactor = 4;
// Runs count only for predictions within this factor of their length: for the same way, for any
// way.
constexpr double kOwnReach = 2, kAnyReach = 4;
// Runs count only for kernels whose pace is within this factor.
constexpr double kSamePace = 1.2;

bool Alike(double a, double b, double most) { return a <= b * most && b <= a * most; }

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

PredictionCorrector::Of PredictionCorrector::KindOf(const Execution& way, Operation operation,
                                                    double predicted_seconds) {
  Of of;
  of.world_size = way.world_size;
  of.gradients = operation == Operation::kGradients;
  of.length =
      static_cast<int32_t>(std::floor(std::log2(std::clamp(predicted_seconds, 1e-9, 1e9)) / 2));
  // On one rank all strategies are the same.
  if (way.world_size > 1) of.strategy = way.strategy;
  return of;
}

void PredictionCorrector::Add(const Execution& way, Operation operation, double predicted_seconds,
                              double took_seconds, double pace) {
  if (!(predicted_seconds > 0 && took_seconds > 0)) return;
  Latest& latest = latest_[KindOf(way, operation, predicted_seconds)];
  const double ratio = std::clamp(took_seconds / predicted_seconds, 1 / kMostFactor, kMostFactor);
  latest.runs[latest.next] = {predicted_seconds, ratio, pace, ++runs_};
  latest.next = (latest.next + 1) % kRemembered;
}

bool PredictionCorrector::Remembered(const Run& run) const {
  return run.number > 0 && run.number + kForgotten > runs_;
}

void PredictionCorrector::Append(const Of& of, const Run& like, double reach,
                                 std::vector<double>* ratios) const {
  const auto latest = latest_.find(of);
  if (latest == latest_.end()) return;
  for (const Run& run : latest->second.runs) {
    if (Remembered(run) && Alike(run.pace, like.pace, kSamePace) &&
        Alike(run.predicted_seconds, like.predicted_seconds, reach))
      ratios->push_back(run.ratio);
  }
}

double PredictionCorrector::FactorOf(const Execution& way, Operation operation,
                                     double predicted_seconds, double pace) const {
  const Of own = KindOf(way, operation, predicted_seconds);
  const Run like{predicted_seconds, 1, pace, 0};
  std::vector<double> ratios;
  const auto append_lengths = [&](Of of, double reach) {
    for (of.length = own.length - 1; of.length <= own.length + 1; ++of.length)
      Append(of, like, reach, &ratios);
  };
  append_lengths(own, kOwnReach);
  if (ratios.size() >= kLeastRuns) return Median(std::move(ratios));
  ratios.clear();
  for (auto strategy = Strategy::kAuto; strategy <= kLastStrategy;
       strategy = static_cast<Strategy>(static_cast<int>(strategy) + 1)) {
    Of of = own;
    of.strategy = strategy;
    append_lengths(of, kAnyReach);
  }
  return ratios.size() >= kLeastRuns ? Median(std::move(ratios)) : 1;
}

double PredictionCorrector::Least() const {
  double least = 1;
  for (const auto& [of, latest] : latest_) {
    for (const Run& run : latest.runs) {
      if (Remembered(run)) least = std::min(least, run.ratio);
    }
  }
  return least;
}

}  // namespace annulus

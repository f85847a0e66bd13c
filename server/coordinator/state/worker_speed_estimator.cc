#include "server/coordinator/state/worker_speed_estimator.h"

#include <algorithm>

namespace annulus {
namespace {

constexpr size_t kRemembered = 16;
// The overhead at the beginning and end of a run, and the time that a scheduler gives to others,
// are a small part of this.
constexpr double kLeastSeconds = 0.02;
constexpr double kLeastFactor = 1.0 / 32, kMostFactor = 2;
constexpr double kAlike = 1.5;

WorkerSpeedEstimators::Of KindOf(const WorkerRates& rates, const AttentionSpec& spec) {
  const KernelRates* kernel = RatesOf(spec, rates.kernels);
  const bool gradients = spec.operation == Operation::kGradients;
  return {gradients, static_cast<size_t>(kernel - rates.kernels.data()),
          gradients ? spec.dtype : kernel->dtype};
}

}  // namespace

KernelRate MeasuredRate(const WorkerRates& rates, const AttentionSpec& spec) {
  return RateOf(spec, *RatesOf(spec, rates.kernels));
}

void WorkerSpeedEstimator::Add(double predicted_seconds, double took_seconds, Kind kind) {
  if (!(took_seconds >= kLeastSeconds) || !(predicted_seconds > 0)) return;
  const double ratio = took_seconds / predicted_seconds;
  if (kind == Kind::kBound && ratio > 1) return;
  ratios_.push_back(ratio);
  if (ratios_.size() > kRemembered) ratios_.pop_front();
}

double WorkerSpeedEstimator::Fastest() const {
  return ratios_.empty() ? 1 : *std::min_element(ratios_.begin(), ratios_.end());
}

double WorkerSpeedEstimator::factor() const {
  const double fastest = std::clamp(Fastest(), kLeastFactor, kMostFactor);
  if (fastest * kAlike < 1) return fastest;
  return fastest > kAlike && ratios_.size() == kRemembered ? fastest : 1;
}

double WorkerSpeedEstimator::least() const { return std::clamp(Fastest(), kLeastFactor, 1.0); }

void WorkerSpeedEstimators::Add(const WorkerRates& rates, const AttentionSpec& spec,
                                const Cost& cost, int32_t rank, double took_seconds) {
  const auto ranks = static_cast<int32_t>(cost.visible_pairs.size());
  if (rank >= ranks || rank >= static_cast<int32_t>(cost.task_rows.size()) ||
      rank >= static_cast<int32_t>(cost.task_keys.size())) {
    return;
  }
  const double predicted = SecondsOf(cost.WorkOf(rank), MeasuredRate(rates, spec));
  const auto kind =
      ranks == 1 ? WorkerSpeedEstimator::Kind::kExact : WorkerSpeedEstimator::Kind::kBound;
  paces_[KindOf(rates, spec)].Add(predicted, took_seconds, kind);
}

KernelRate WorkerSpeedEstimators::RateFor(const WorkerRates& rates,
                                          const AttentionSpec& spec) const {
  const auto shown = paces_.find(KindOf(rates, spec));
  return Scaled(MeasuredRate(rates, spec), shown == paces_.end() ? 1 : shown->second.factor());
}

KernelRate WorkerSpeedEstimators::LeastRateFor(const WorkerRates& rates,
                                               const AttentionSpec& spec) const {
  return Scaled(MeasuredRate(rates, spec), LeastOf(rates, spec.operation));
}

double WorkerSpeedEstimators::LeastOf(const WorkerRates& rates, Operation operation) const {
  double least = 1;
  bool shown = false;
  for (const auto& [of, pace] : paces_) {
    if (of.gradients != (operation == Operation::kGradients) || pace.runs() == 0) continue;
    least = std::min(least, pace.least());
    shown = true;
  }
  return shown ? least : std::clamp(rates.cpu_share, kLeastFactor, 1.0);
}

}  // namespace annulus

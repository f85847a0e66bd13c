#include "worker/kernel/tile_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/dropout.h"

namespace annulus {
namespace {

// A cap below the smallest normal number caps to nothing that fp32 arithmetic here tells from 0.
ScoreRule CapRule(double cap) {
  ScoreRule rule;
  rule.cap = std::max(static_cast<float>(cap), std::numeric_limits<float>::min());
  const double per_cap = 1.0 / rule.cap;
  rule.per_cap_high = static_cast<float>(per_cap);
  if (rule.per_cap_high >= per_cap) rule.per_cap_high = std::nextafter(rule.per_cap_high, 0.0f);
  rule.per_cap_low = static_cast<float>(per_cap - rule.per_cap_high);
  return rule;
}

}  // namespace

TileRules::TileRules(const KernelJob& job) : job_(job) {
  const ScoreModifiers& modifiers = job.spec->modifiers;
  alibi_ = !modifiers.alibi_slopes.empty();
  change_scores_ = alibi_ || modifiers.soft_cap.has_value();
  if (modifiers.soft_cap) score_rule_ = CapRule(*modifiers.soft_cap);
  if (alibi_) {
    score_rule_.slope = slope_.data();
    score_rule_.position = position_.data();
    score_rule_.key = key_.data();
  }
  if (!job.spec->dropout) return;
  const DropoutRule dropout(*job.spec->dropout);
  drop_rule_.threshold = dropout.threshold();
  std::copy_n(dropout.key().begin(), 2, drop_rule_.seed);
  drop_rule_.counter = counter_;
  drop_rule_.first_key = first_key_.data();
  drop_rule_.key = key_.data();
}

void TileRules::SetRow(const KernelTask& task, int index, int64_t row, int32_t q_head) {
  if (!alibi_ && !drop_weights()) return;
  const int64_t q_row = task.q_rows->Global(row);
  if (alibi_) {
    slope_[index] = job_.spec->modifiers.alibi_slopes[q_head];
    position_[index] = static_cast<int32_t>(job_.mask->Position(q_head, q_row));
  }
  if (!drop_weights()) return;
  const int64_t sequence = job_.mask->SequenceOfQuery(q_row);
  first_key_[index] = static_cast<int32_t>(job_.mask->KeyBegin(sequence));
  const auto counter =
      DropoutRule::CounterOf(sequence, q_head, q_row - job_.mask->QueryBegin(sequence));
  std::copy(counter.begin(), counter.end(), counter_[index]);
}

void TileRules::SetKeys(const KernelTask& task, int64_t first) {
  if (!alibi_ && !drop_weights()) return;
  const int64_t end = std::min(task.k_rows->rows(), first + kKeyBlock);
  task.k_rows->ForEachRun({first, end}, [&](int64_t local, int64_t global, int64_t count) {
    for (int64_t i = 0; i < count; ++i) key_[local - first + i] = static_cast<int32_t>(global + i);
  });
  std::fill(key_.begin() + (end - first), key_.end(), 0);
}

}  // namespace annulus

#include "worker/kernel/cpu/tile_rules.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "attention/numerics/dropout.h"
#include "worker/kernel/block_sections.h"
#include "worker/kernel/cpu/isa/two_parts.h"

namespace annulus {
namespace {

// A cap below the smallest normal number gives scores that fp32 arithmetic here cannot tell from 0.
ScoreRule CapRule(double cap) {
  ScoreRule rule;
  rule.cap = std::max(static_cast<float>(cap), std::numeric_limits<float>::min());
  const TwoParts per_cap = PartsOf(1.0 / rule.cap);
  rule.per_cap_high = per_cap.high;
  rule.per_cap_low = per_cap.low;
  return rule;
}

}  // namespace

TileRules::TileRules(const KernelJob& job) : job_(job) {
  const ScoreModifiers& modifiers = job.spec->modifiers;
  alibi_ = !modifiers.alibi_slopes.empty();
  const BiasAndMaskInputs& pairs = job.layout->pairs();
  change_scores_ = alibi_ || modifiers.soft_cap.has_value() || pairs.any();
  if (modifiers.soft_cap) score_rule_ = CapRule(*modifiers.soft_cap);
  row_inputs_ = pairs.any();
  if (row_inputs_) {
    pair_row_.resize(kMostTileRows);
    own_keys_.resize(kMostTileRows);
  }
  if (pairs.has_offset) score_rule_.offset = offset_.data();
  if (pairs.has_bias || pairs.has_bits) score_rule_.pairs = &pair_rule_;
  pair_rule_.dtype = pairs.bias_dtype;
  pair_rule_.row = pair_row_.data();
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
  if (row_inputs_) SetPairRow(task, index, row, q_head);
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

void TileRules::SetPairRow(const KernelTask& task, int index, int64_t row, int32_t q_head) {
  const BiasAndMaskInputs& pairs = job_.layout->pairs();
  const Block& block = task.pairs.block;
  const int64_t q_row = task.q_rows->Global(row), head = q_head - block.head_begin;
  const int64_t sequence = job_.mask->SequenceOfQuery(q_row);
  const auto at = [&](int section) {
    const SectionPlace place = PlaceOf(*job_.layout, task.pairs, section);
    return place.first + (row - block.row_begin) * place.stride;
  };
  if (pairs.has_offset) std::memcpy(&offset_[index], at(2) + head * sizeof(float), sizeof(float));
  pair_rows_ = index + 1;
  PairRule::Row& rule = pair_row_[index];
  rule.first_key = job_.mask->KeyBegin(sequence);
  own_keys_[index] = task.k_rows->Local({rule.first_key, job_.mask->KeyBegin(sequence + 1)});
  if (pairs.has_bias) rule.bias = at(0) + (pairs.bias_heads == 1 ? 0 : head) * pairs.bias_bytes();
  rule.bits = nullptr;
  if (!pairs.has_bits || !job_.mask->HasBits(q_head, sequence)) return;
  rule.bits = at(1) + (pairs.bit_heads == 1 ? 0 : head) * pairs.bit_bytes();
}

void TileRules::SetPairKeys(const KernelTask& task, int64_t first) {
  const Interval block{first, std::min(task.k_rows->rows(), first + kKeyBlock)};
  runs_.clear();
  task.k_rows->ForEachRun(block, [&](int64_t local, int64_t global, int64_t count) {
    runs_.push_back(
        {static_cast<int16_t>(local - first), static_cast<int16_t>(local - first + count), global});
  });
  pair_rule_.runs = runs_.data();
  pair_rule_.run_count = static_cast<int>(runs_.size());
  for (int i = 0; i < pair_rows_; ++i) {
    const Interval own = Intersect(own_keys_[i], block);
    pair_row_[i].begin = static_cast<int16_t>(own.length() == 0 ? 0 : own.begin - first);
    pair_row_[i].end = static_cast<int16_t>(own.length() == 0 ? 0 : own.end - first);
  }
}

// Compares with the bits of −inf in each type.
bool TileRules::Hides(const PairRule::Row& row, int64_t key) const {
  const int64_t column = key - row.first_key;
  if (row.bits != nullptr && (static_cast<int>(row.bits[column / 8]) >> column % 8 & 1) == 0)
    return true;
  if (row.bias == nullptr) return false;
  if (pair_rule_.dtype == DataType::kFp32) {
    uint32_t bits;
    std::memcpy(&bits, row.bias + 4 * column, 4);
    return bits == 0xff800000u;
  }
  uint16_t bits;
  std::memcpy(&bits, row.bias + 2 * column, 2);
  return bits == (pair_rule_.dtype == DataType::kBf16 ? 0xff80 : 0xfc00);
}

void TileRules::AddSeen(int index, KeySpan span, std::vector<KeySpan>* seen) const {
  if (!hides_pairs()) return seen->push_back(span);
  bool open = false;
  for (const PairRule::Run& run : runs_) {
    const int end = std::min(span.end, run.end);
    for (int k = std::max(span.begin, run.begin); k < end; ++k) {
      const bool sees = !Hides(pair_row_[index], run.key + k - run.begin);
      if (sees && !open) seen->push_back({static_cast<int16_t>(k), static_cast<int16_t>(k)});
      if (sees) seen->back().end = static_cast<int16_t>(k + 1);
      open = sees;
    }
  }
}

void TileRules::ForEachColumnRun(int index, KeySpan span,
                                 absl::FunctionRef<void(int, int64_t, int)> fn) const {
  for (const PairRule::Run& run : runs_) {
    const int begin = std::max(span.begin, run.begin), end = std::min(span.end, run.end);
    if (begin >= end) continue;
    fn(begin, run.key + (begin - run.begin) - pair_row_[index].first_key, end - begin);
  }
}

void TileRules::SetKeys(const KernelTask& task, int64_t first) {
  if (hides_pairs()) SetPairKeys(task, first);
  if (!alibi_ && !drop_weights()) return;
  const int64_t end = std::min(task.k_rows->rows(), first + kKeyBlock);
  task.k_rows->ForEachRun({first, end}, [&](int64_t local, int64_t global, int64_t count) {
    for (int64_t i = 0; i < count; ++i) key_[local - first + i] = static_cast<int32_t>(global + i);
  });
  std::fill(key_.begin() + (end - first), key_.end(), 0);
}

}  // namespace annulus

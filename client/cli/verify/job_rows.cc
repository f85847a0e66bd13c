#include "client/cli/verify/job_rows.h"

#include <cmath>
#include <limits>

namespace annulus {

RowRule MakeRowRule(const AttentionSpec& spec, const MaskMap& mask, const BiasAndMaskRows& pairs,
                    int32_t head, int64_t row) {
  const ScoreModifiers& modifiers = spec.modifiers;
  RowRule rule;
  rule.scale = spec.scale_or_default();
  rule.soft_cap = modifiers.soft_cap;
  if (!modifiers.sinks.empty()) rule.sink = modifiers.sinks[head];
  if (!modifiers.alibi_slopes.empty()) rule.slope = modifiers.alibi_slopes[head];
  rule.offset = pairs.OffsetOf(head, row);
  rule.position = mask.Position(head, row);
  rule.sequence = mask.SequenceOfQuery(row);
  rule.first_key = mask.KeyBegin(rule.sequence);
  rule.row = row - mask.QueryBegin(rule.sequence);
  rule.head = head;
  return rule;
}

namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

float LargestOf(const float* values, int64_t size) {
  // Independent lanes, so that comparisons do not wait for one another.
  constexpr int64_t kLanes = 8;
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (int64_t n = 0; n < kLanes; ++n) lanes[n] = std::max(lanes[n], std::abs(values[i + n]));
  }
  for (; i < size; ++i) lanes[0] = std::max(lanes[0], std::abs(values[i]));
  return *std::max_element(lanes, lanes + kLanes);
}

}  // namespace

JobRows::JobRows(const AttentionSpec& spec, const std::map<TensorId, const std::byte*>& tensors)
    : spec_(spec),
      tensors_(spec, tensors),
      mask_(spec),
      pairs_(spec, mask_,
             {tensors_.data(TensorId::kBias), tensors_.data(TensorId::kBitMask),
              tensors_.data(TensorId::kLseOffset)}) {
  if (spec.dropout.has_value()) dropout_.emplace(*spec.dropout);
}

QueryRow JobRows::Query(int32_t head, int64_t row) const {
  QueryRow query{tensors_.Rows(TensorId::kQ, head, row, 1),
                 MakeRowRule(spec_, mask_, pairs_, head, row), mask_.VisiblePacked(head, row), row};
  if (!dropout_.has_value()) return query;
  query.rule.dropout = &*dropout_;
  query.rule.kept = 1 - spec_.dropout->rate;
  return query;
}

void JobRows::LoadKeys(int32_t kv_head, Interval rows, KeyBlock* block) const {
  block->rows = rows;
  block->k.resize(spec_.head_dim * KeyBlock::kRows);
  const std::vector<float> keys = tensors_.Rows(TensorId::kK, kv_head, rows.begin, rows.length());
  // Transposed in tiles: a whole column would touch one cache line for each row of the block.
  constexpr int64_t kTile = KeyBlock::kAtOnce;
  for (int64_t first = 0; first < rows.length(); first += kTile) {
    const int64_t count = std::min(kTile, rows.length() - first);
    for (int64_t d = 0; d < spec_.head_dim; ++d) {
      float* to = &block->k[d * KeyBlock::kRows + first];
      for (int64_t n = 0; n < count; ++n) to[n] = keys[(first + n) * spec_.head_dim + d];
    }
  }
}

void JobRows::LoadValues(int32_t kv_head, KeyBlock* block) const {
  const int64_t dim = spec_.value_dim(), count = block->rows.length();
  block->v = tensors_.Rows(TensorId::kV, kv_head, block->rows.begin, count);
  block->max_v.resize(count);
  for (int64_t n = 0; n < count; ++n) block->max_v[n] = LargestOf(&block->v[n * dim], dim);
}

void JobRows::Find(const QueryRow& query, const KeyBlock& block, VisibleKeys* seen) const {
  seen->at.clear();
  seen->bias.clear();
  for (const Interval& interval : query.seen) {
    const Interval both = Intersect(interval, block.rows);
    for (int64_t key = both.begin; key < both.end; ++key) {
      const float bias = pairs_.HasBias() ? pairs_.BiasAt(query.rule.head, query.row, key) : 0;
      if (bias == kMinusInf) continue;
      seen->at.push_back(key - block.rows.begin);
      seen->bias.push_back(bias);
    }
  }
}

bool JobRows::Hides(int32_t head, int64_t row, int64_t key) const {
  return pairs_.BiasAt(head, row, key) == kMinusInf;
}

std::vector<int64_t> JobRows::KeysOf(int32_t head, int64_t row) const {
  std::vector<int64_t> keys;
  for (const Interval& seen : mask_.VisiblePacked(head, row)) {
    for (int64_t key = seen.begin; key < seen.end; ++key) {
      if (!Hides(head, row, key)) keys.push_back(key);
    }
  }
  return keys;
}

bool JobRows::Sees(int32_t head, int64_t row, int64_t key) const {
  if (Hides(head, row, key)) return false;
  const Intervals seen = mask_.VisiblePacked(head, row);
  return std::any_of(seen.begin(), seen.end(), [key](const Interval& interval) {
    return interval.begin <= key && key < interval.end;
  });
}

}  // namespace annulus

// GradientLoop: the scores, weights and dS of a tile.

#include <algorithm>
#include <cmath>

#include "worker/kernel/cpu/gradient_loop.h"

namespace annulus {

void GradientLoop::MakeWeights() {
  const GradientIsa& functions = *call_.isa->gradients;
  TileBlock product;
  product.rows = rows_;
  product.group_begin = s_.group_begin_.data();
  product.group_end = s_.group_end_.data();
  product.head_dim = layout_.head_dim();
  // Packed queries already have the scale's sign.
  const float left_out = of_bf16() ? static_cast<float>(std::abs(call_.job->scale)) : 1;
  product.score_scale = rules_.change_scores() ? left_out : 1;
  product.queries = s_.queries_;
  product.keys = s_.keys_;
  product.scores = s_.weights_;
  call_.isa->score(product);
  product.score_scale = 1;
  product.head_dim = layout_.value_dim();
  product.queries = s_.d_outs_;
  product.keys = s_.values_;
  product.scores = s_.d_scores_;
  call_.isa->score(product);
  GradientTile tile;
  tile.rows = rows_;
  tile.scale = of_bf16() ? 1 : static_cast<float>(call_.job->scale);
  tile.weight_scale = rules_.change_scores() ? 1 : left_out;
  tile.lse = s_.lse_.data();
  tile.lse_rest = s_.lse_rest_.data();
  tile.delta = s_.delta_.data();
  tile.weights = s_.weights_;
  tile.d_scores = s_.d_scores_;
  tile.group_begin = s_.group_begin_.data();
  tile.group_end = s_.group_end_.data();
  if (rules_.drop_weights()) {
    product.scores = s_.kept_;
    FindKept(product);
    functions.multiply(tile, s_.kept_, s_.d_scores_);
  }
  const int64_t cells = int64_t{rows_} * kKeyBlock;
  if (adds_to_bias()) std::copy_n(s_.d_scores_, cells, s_.d_bias_);
  if (rules_.change_scores()) {
    product.scores = s_.weights_;
    ChangeScores(&product, &tile);
  }
  functions.weigh(tile);
  if (adds_to_bias()) WeighBias();
  if (rules_.drop_weights()) functions.multiply(tile, s_.kept_, s_.weights_);
  if (rules_.hides_pairs()) {
    functions.clear_hidden(tile, s_.pairs_, s_.weights_);
    functions.clear_hidden(tile, s_.pairs_, s_.d_scores_);
    if (adds_to_bias()) functions.clear_hidden(tile, s_.pairs_, s_.d_bias_);
  }
  if (masked_) ClearHidden();
}

// dS before soft cap and scale, laid out as weights. Entries of masked pairs are undefined.
void GradientLoop::WeighBias() {
  for (int i = 0; i < rows_; ++i) {
    const float* const weights = s_.weights_ + i * kKeyBlock;
    float* const d_bias = s_.d_bias_ + i * kKeyBlock;
    for (int k = s_.slots_[i].begin; k < s_.slots_[i].end; ++k) {
      d_bias[k] = weights[k] * (d_bias[k] - s_.delta_[i]);
    }
  }
}

// The factor of a weight before its product with V: 0, or 1 / (1 − rate).
void GradientLoop::FindKept(const TileBlock& kept) {
  const auto factor = static_cast<float>(1 / (1 - call_.job->spec->dropout->rate));
  std::fill_n(kept.scores, int64_t{rows_} * kKeyBlock, factor);
  call_.isa->drop_weights(kept, rules_.drop_rule());
}

void GradientLoop::ChangeScores(TileBlock* scores, GradientTile* tile) {
  ScoreRule cap = rules_.score_rule(), alibi = cap;
  cap.slope = nullptr;
  cap.pairs = alibi.pairs = nullptr;
  alibi.cap = 0;
  alibi.offset = nullptr;
  if (cap.cap != 0 || cap.offset != nullptr) call_.isa->change_scores(*scores, cap);
  if (cap.cap != 0) {
    call_.isa->gradients->uncap(*tile, cap);
    tile->delta = s_.zeros_.data();
  }
  if (alibi.slope != nullptr) call_.isa->change_scores(*scores, alibi);
  if (rules_.hides_pairs()) AddPairs(*scores, *tile);
}

// The bias is kept apart: afterwards its −inf entries show the pairs that bias and bit mask hide,
// whatever the scores are.
void GradientLoop::AddPairs(const TileBlock& scores, const GradientTile& tile) {
  ScoreRule pairs;
  pairs.pairs = rules_.score_rule().pairs;
  std::fill_n(s_.pairs_, int64_t{rows_} * kKeyBlock, 0.0f);
  TileBlock of_pairs = scores;
  of_pairs.scores = s_.pairs_;
  call_.isa->change_scores(of_pairs, pairs);
  call_.isa->gradients->add(tile, s_.pairs_, scores.scores);
}

// Puts 0 for masked pairs wherever sums over slots or keys read, which may be whole panels.
void GradientLoop::ClearHidden() {
  const int panel = call_.isa->panel;
  for (int i = 0; i < rows_; ++i) {
    int at = begin_ / panel * panel;
    const auto clear = [&](int end) {
      if (at >= end) return;
      std::fill(s_.weights_ + i * kKeyBlock + at, s_.weights_ + i * kKeyBlock + end, 0.0f);
      std::fill(s_.d_scores_ + i * kKeyBlock + at, s_.d_scores_ + i * kKeyBlock + end, 0.0f);
    };
    for (const Interval& span : s_.slots_[i].spans) {
      const Interval seen = Intersect(span, block_);
      clear(static_cast<int>(seen.begin - block_.begin));
      at = static_cast<int>(seen.end - block_.begin);
      std::fill(s_.seen_.begin() + (seen.begin - block_.begin), s_.seen_.begin() + at, 1);
    }
    clear((end_ + panel - 1) / panel * panel);
  }
}

}  // namespace annulus

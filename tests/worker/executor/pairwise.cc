#include "tests/worker/executor/pairwise.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>
#include <utility>

namespace annulus {
namespace {

constexpr int32_t kOpen = -1;

class Covering {
 public:
  Covering(const std::vector<int32_t>& sizes, const Meaningful& meaningful, uint64_t seed)
      : sizes_(sizes), random_(seed) {
    for (const int32_t size : sizes_) {
      first_.push_back(values_);
      values_ += size;
    }
    state_.assign(static_cast<size_t>(values_) * values_, kImpossible);
    for (int32_t a = 0; a < axes(); ++a) {
      for (int32_t b = a + 1; b < axes(); ++b) {
        for (int32_t i = 0; i < sizes_[a]; ++i) {
          for (int32_t j = 0; j < sizes_[b]; ++j) {
            if (!meaningful(a, i, b, j)) continue;
            At(a, i, b, j) = kMissing;
            missing_.push_back({a, i, b, j});
          }
        }
      }
    }
    std::shuffle(missing_.begin(), missing_.end(), random_);
  }

  std::vector<Combination> Make() {
    constexpr int kCandidates = 12;
    std::vector<Combination> all;
    for (const Pair& pair : missing_) {
      if (At(pair.a, pair.i, pair.b, pair.j) != kMissing) continue;
      std::optional<Combination> best;
      int64_t most = 0;
      for (int n = 0; n < kCandidates; ++n) {
        std::optional<Combination> found = Complete(pair);
        if (!found || NewPairs(*found) <= most) continue;
        most = NewPairs(*found);
        best = std::move(found);
      }
      if (!best) continue;
      Mark(*best);
      all.push_back(*std::move(best));
    }
    return all;
  }

 private:
  enum State : uint8_t { kImpossible, kMissing, kCovered };
  struct Pair {
    int32_t a, i, b, j;
  };

  int32_t axes() const { return static_cast<int32_t>(sizes_.size()); }
  State& At(int32_t a, int32_t i, int32_t b, int32_t j) {
    if (a > b) std::swap(a, b), std::swap(i, j);
    return state_[static_cast<size_t>(first_[a] + i) * values_ + first_[b] + j];
  }

  // The number of missing pairs of value i of axis a with the chosen values; nullopt if one is
  // impossible.
  std::optional<int64_t> Gain(const Combination& chosen, int32_t a, int32_t i) {
    int64_t gain = 0;
    for (int32_t b = 0; b < axes(); ++b) {
      if (b == a || chosen[b] == kOpen) continue;
      const State state = At(a, i, b, chosen[b]);
      if (state == kImpossible) return std::nullopt;
      gain += state == kMissing ? 1 : 0;
    }
    return gain;
  }

  // Axis by axis in random order, chooses the value that covers most. nullopt if the earlier axes
  // leave no value.
  std::optional<Combination> Complete(const Pair& pair) {
    Combination chosen(sizes_.size(), kOpen);
    chosen[pair.a] = pair.i;
    chosen[pair.b] = pair.j;
    std::vector<int32_t> order(sizes_.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    for (const int32_t axis : order) {
      if (chosen[axis] != kOpen) continue;
      int64_t most = -1;
      const auto start = static_cast<int32_t>(random_() % sizes_[axis]);
      for (int32_t n = 0; n < sizes_[axis]; ++n) {
        const int32_t value = (start + n) % sizes_[axis];
        const std::optional<int64_t> gain = Gain(chosen, axis, value);
        if (!gain || *gain <= most) continue;
        most = *gain;
        chosen[axis] = value;
      }
      if (chosen[axis] == kOpen) return std::nullopt;
    }
    return chosen;
  }

  int64_t NewPairs(const Combination& chosen) {
    int64_t twice = 0;
    for (int32_t a = 0; a < axes(); ++a) twice += *Gain(chosen, a, chosen[a]);
    return twice / 2;
  }

  void Mark(const Combination& chosen) {
    for (int32_t a = 0; a < axes(); ++a) {
      for (int32_t b = a + 1; b < axes(); ++b) At(a, chosen[a], b, chosen[b]) = kCovered;
    }
  }

  const std::vector<int32_t> sizes_;
  std::mt19937_64 random_;
  std::vector<int32_t> first_;  // Index of each axis' first value among all values.
  int32_t values_ = 0;
  std::vector<State> state_;
  std::vector<Pair> missing_;  // At the start.
};

}  // namespace

std::vector<Combination> CoverPairs(const std::vector<int32_t>& sizes, const Meaningful& meaningful,
                                    uint64_t seed) {
  return Covering(sizes, meaningful, seed).Make();
}

}  // namespace annulus

#include "server/coordinator/state/fair_shares.h"

#include <algorithm>
#include <vector>

namespace annulus {
namespace {

// Above this number, the less served half counts as level.
constexpr size_t kMaxRemembered = 1024;
// The least cost of a segment, so that tiny ones count too.
constexpr double kLeastRankSeconds = 1e-4;

}  // namespace

double FairShares::Served(const std::string& principal) const {
  auto it = finish_.find(principal);
  return it == finish_.end() ? level_ : std::max(level_, it->second);
}

void FairShares::Charge(const std::string& principal, double rank_seconds) {
  level_ = Served(principal);
  finish_[principal] = level_ + std::max(rank_seconds, kLeastRankSeconds);
  if (finish_.size() > kMaxRemembered) ForgetHalf();
}

void FairShares::ForgetHalf() {
  std::vector<double> order;
  for (const auto& [principal, finish] : finish_) order.push_back(finish);
  std::nth_element(order.begin(), order.begin() + order.size() / 2, order.end());
  level_ = std::max(level_, order[order.size() / 2]);
  for (auto it = finish_.begin(); it != finish_.end();) {
    it = it->second <= level_ ? finish_.erase(it) : std::next(it);
  }
}

}  // namespace annulus

#include "server/coordinator/state/fair_queue.h"

#include <algorithm>
#include <set>
#include <vector>

#include "attention/spec/execution.h"

namespace annulus {
namespace {

// Above this number of principals, the less served half of the shares counts as level.
constexpr size_t kMaxShares = 1024;
// Above this number, the principals without a waiting job are forgotten.
constexpr size_t kMaxRemembered = 4096;
// The least cost of a job and of a segment, so that many tiny ones count too.
constexpr double kLeastRankSeconds = 1e-4;

}  // namespace

double FairShares::Served(const std::string& principal) const {
  auto it = finish_.find(principal);
  return it == finish_.end() ? level_ : std::max(level_, it->second);
}

void FairShares::Charge(const std::string& principal, double rank_seconds) {
  level_ = Served(principal);
  finish_[principal] = level_ + std::max(rank_seconds, kLeastRankSeconds);
  if (finish_.size() > kMaxShares) ForgetHalf();
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

FairQueue::Key FairQueue::KeyOf(const Entry& entry) {
  const double seconds = absl::ToDoubleSeconds(entry.submitted - absl::UnixEpoch());
  return {seconds - entry.priority * absl::ToDoubleSeconds(kPriorityStep), entry.job};
}

double FairQueue::LeastServed() const {
  double least = 0;
  bool first = true;
  for (const auto& [name, principal] : principals_) {
    least = first ? principal.served : std::min(least, principal.served);
    first = false;
  }
  return least;
}

void FairQueue::Push(Entry entry) {
  // A principal that was idle starts level with the others: unused service is not saved up, and a
  // debt is not forgiven.
  const double level = LeastServed();
  auto [it, is_new] = principals_.try_emplace(entry.principal);
  if (is_new) {
    auto debt = remembered_.find(entry.principal);
    it->second.served = debt == remembered_.end() ? level : std::max(level, debt->second);
    if (debt != remembered_.end()) remembered_.erase(debt);
  }
  const Key key = KeyOf(entry);
  index_[entry.job] = {entry.principal, key};
  it->second.waiting.emplace(key, std::move(entry));
}

void FairQueue::Remove(int64_t job) {
  auto place = index_.find(job);
  if (place == index_.end()) return;
  auto principal = principals_.find(place->second.principal);
  principal->second.waiting.erase(place->second.key);
  if (principal->second.waiting.empty()) {
    if (remembered_.size() >= kMaxRemembered) remembered_.clear();
    remembered_[principal->first] = principal->second.served;
    principals_.erase(principal);
  }
  index_.erase(place);
  if (index_.empty()) remembered_.clear();
}

double FairQueue::WorkAhead(const Entry& newcomer,
                            absl::FunctionRef<double(const Entry&)> share) const {
  const auto principal = principals_.find(newcomer.principal);
  if (principal == principals_.end()) return 0;
  const double its = KeyOf(newcomer).first;
  double sum = 0;
  for (const auto& [key, entry] : principal->second.waiting) {
    if (key.first > its) break;
    if (entry.stands_aside || (entry.ranks > 1) != (newcomer.ranks > 1)) continue;
    sum += entry.rank_seconds * share(entry);
  }
  return sum;
}

void FairQueue::Serve(absl::FunctionRef<bool(int64_t job)> take) {
  // Places only fill up while jobs are taken, so a refused job need not be offered again.
  std::set<int64_t> refused;
  while (true) {
    std::vector<std::pair<double, std::string>> order;
    for (const auto& [name, principal] : principals_) order.emplace_back(principal.served, name);
    std::sort(order.begin(), order.end());
    int64_t taken = 0;
    for (const auto& [served, name] : order) {
      Principal& principal = principals_[name];
      for (const auto& [key, entry] : principal.waiting) {
        if (refused.count(entry.job) != 0) continue;
        if (!take(entry.job)) {
          refused.insert(entry.job);
          continue;
        }
        taken = entry.job;
        principal.served += std::max(entry.rank_seconds, kLeastRankSeconds);
        break;
      }
      if (taken != 0) break;
    }
    if (taken == 0) return;
    Remove(taken);
  }
}

}  // namespace annulus

#include "attention/schedule/arena/arena_allocator.h"

#include <algorithm>
#include <utility>

namespace annulus {
namespace {

std::vector<ArenaAllocator::Life> EachOnce(std::vector<ArenaAllocator::Life> lives) {
  std::sort(lives.begin(), lives.end());
  lives.erase(std::unique(lives.begin(), lives.end()), lives.end());
  return lives;
}

void Take(Interval bytes, std::vector<Interval>* taken) {
  const auto first = std::partition_point(
      taken->begin(), taken->end(), [&](const Interval& one) { return one.end < bytes.begin; });
  auto last = first;
  for (; last != taken->end() && last->begin <= bytes.end; ++last) {
    bytes = {std::min(bytes.begin, last->begin), std::max(bytes.end, last->end)};
  }
  if (first == last) {
    taken->insert(first, bytes);
    return;
  }
  *first = bytes;
  taken->erase(first + 1, last);
}

}  // namespace

ArenaAllocator::ArenaAllocator(std::vector<Life> lives) : lives_(EachOnce(std::move(lives))) {
  met_.resize(lives_.size());
  for (size_t i = 0; i < lives_.size(); ++i) {
    for (size_t j = 0; j < lives_.size() && lives_[j].first <= lives_[i].second; ++j) {
      if (lives_[i].first <= lives_[j].second) met_[i].push_back(j);
    }
  }
  Clear();
}

void ArenaAllocator::Clear() { taken_.assign(lives_.size(), {}); }

int64_t ArenaAllocator::Place(const Life& life, int64_t bytes) {
  const size_t number = std::lower_bound(lives_.begin(), lives_.end(), life) - lives_.begin();
  int64_t offset = 0;
  for (const Interval& one : taken_[number]) {
    ++looked_at_;
    if (one.begin - offset >= bytes) break;
    offset = one.end;
  }
  if (bytes == 0) return offset;
  for (const size_t met : met_[number]) Take({offset, offset + bytes}, &taken_[met]);
  return offset;
}

}  // namespace annulus

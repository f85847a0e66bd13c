#include "worker/device/memory_slab.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace annulus {
namespace {

constexpr int64_t kUnit = 256;

int64_t WholeUnits(int64_t bytes) {
  return (std::max<int64_t>(bytes, 1) + kUnit - 1) / kUnit * kUnit;
}

}  // namespace

std::shared_ptr<MemorySlab> MemorySlab::Create(std::shared_ptr<std::byte> owner, int64_t bytes) {
  return std::shared_ptr<MemorySlab>(new MemorySlab(std::move(owner), bytes));
}

MemorySlab::MemorySlab(std::shared_ptr<std::byte> owner, int64_t bytes)
    : owner_(std::move(owner)), bytes_(bytes / kUnit * kUnit) {
  if (bytes_ > 0) gaps_[0] = bytes_;
}

std::shared_ptr<std::byte> MemorySlab::Take(int64_t bytes) {
  if (bytes > bytes_) return nullptr;
  const int64_t size = WholeUnits(bytes);
  MutexLock lock(&mutex_);
  auto best = gaps_.end();
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    if (gap->second < size) continue;
    if (best == gaps_.end() || gap->second < best->second) best = gap;
  }
  if (best == gaps_.end()) return nullptr;
  const auto [offset, gap_bytes] = *best;
  gaps_.erase(best);
  if (gap_bytes > size) gaps_[offset + size] = gap_bytes - size;
  return std::shared_ptr<std::byte>(
      owner_.get() + offset,
      [self = shared_from_this(), at = offset, size](std::byte*) { self->Return(at, size); });
}

void MemorySlab::Return(int64_t offset, int64_t bytes) {
  MutexLock lock(&mutex_);
  auto next = gaps_.lower_bound(offset);
  if (next != gaps_.end() && offset + bytes == next->first) {
    bytes += next->second;
    next = gaps_.erase(next);
  }
  if (next != gaps_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  gaps_[offset] = bytes;
}

bool MemorySlab::Holds(const std::byte* data, int64_t bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(owner_.get());
  const auto at = reinterpret_cast<uintptr_t>(data);
  return at >= begin && bytes <= bytes_ && at - begin <= static_cast<uintptr_t>(bytes_ - bytes);
}

int64_t MemorySlab::free_bytes() const {
  MutexLock lock(&mutex_);
  int64_t sum = 0;
  for (const auto& [offset, bytes] : gaps_) sum += bytes;
  return sum;
}

int64_t MemorySlab::largest_gap() const {
  MutexLock lock(&mutex_);
  int64_t most = 0;
  for (const auto& [offset, bytes] : gaps_) most = std::max(most, bytes);
  return most;
}

}  // namespace annulus

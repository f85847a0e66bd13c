#ifndef ANNULUS_WORKER_STAGING_PAGE_POOL_H_
#define ANNULUS_WORKER_STAGING_PAGE_POOL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "worker/staging/memory_budget.h"

namespace annulus {

// Host memory under a budget. Freed memory is kept and given out again, because the first touch of
// a fresh page costs about as much as the copy into it; what is kept and what is in use never
// exceed the budget's limit together. With a source nothing is kept but what that holds: where it
// has no piece that is large enough, memory is mapped, and unmapped as soon as it is free, so that
// this and the source's are never more than twice the limit. Thread-safe.
class PagePool : public std::enable_shared_from_this<PagePool> {
 public:
  // Memory that is preferred, page-aligned or not: of so many bytes, or null where none is left. It
  // was taken beforehand, and is no part of what is kept.
  using Source = std::function<std::shared_ptr<std::byte>(int64_t bytes)>;

  // An empty source has none.
  static std::shared_ptr<PagePool> Create(std::shared_ptr<MemoryBudget> budget, Source source = {});
  ~PagePool();

  // `bytes` (>= 0) of memory, page-aligned where it is not the source's, with undefined contents,
  // and `padding` more that the budget is not charged for (at most a page). Its destructor, on any
  // thread, is the one place where the memory and its bytes of the budget return.
  // RESOURCE_EXHAUSTED: BUDGET_EXCEEDED, OUT_OF_MEMORY.
  absl::StatusOr<std::shared_ptr<std::byte>> Allocate(int64_t bytes, int64_t padding = 0);

  const MemoryBudget& budget() const { return *budget_; }
  // Kept for the next Allocate.
  int64_t kept_bytes() const;

 private:
  PagePool(std::shared_ptr<MemoryBudget> budget, Source source);

  // `bytes` (whole pages) of a kept piece that is little larger, whose rest is unmapped; or
  // nullptr.
  std::byte* TakeKept(int64_t bytes);
  // Unmaps kept pieces until at most `bytes` are kept.
  void ShrinkLocked(int64_t bytes) REQUIRES(mutex_);
  void GiveBack(std::byte* data, int64_t size);

  const std::shared_ptr<MemoryBudget> budget_;
  const Source source_;
  mutable Mutex mutex_;
  std::multimap<int64_t, std::byte*> kept_ GUARDED_BY(mutex_);  // By size.
  int64_t kept_bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_STAGING_PAGE_POOL_H_

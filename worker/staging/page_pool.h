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

// Host memory under a budget. Freed memory is kept for reuse, because the first touch of a fresh
// page costs about as much as the copy into it. Kept and used memory together never exceed the
// budget's limit.
//
// With a source, only the source's memory is reused. If the source has no piece that is large
// enough, memory is mapped, and unmapped when it is freed. So mapped and source memory together
// never exceed twice the limit. Thread-safe.
class PagePool : public std::enable_shared_from_this<PagePool> {
 public:
  // Preferred memory of `bytes`, possibly not page-aligned; nullptr if none is left. It was
  // allocated before and does not count as kept.
  using Source = std::function<std::shared_ptr<std::byte>(int64_t bytes)>;

  // An empty `source`: no source.
  static std::shared_ptr<PagePool> Create(std::shared_ptr<MemoryBudget> budget, Source source = {});
  ~PagePool();

  // `bytes` (>= 0) of memory with undefined content, plus `padding` (at most a page) that is not
  // charged to the budget. Page-aligned unless it is the source's. Its destructor, on any thread,
  // returns the memory and its budget; nothing else does. RESOURCE_EXHAUSTED / BUDGET_EXCEEDED or
  // OUT_OF_MEMORY.
  absl::StatusOr<std::shared_ptr<std::byte>> Allocate(int64_t bytes, int64_t padding = 0);

  const MemoryBudget& budget() const { return *budget_; }
  // The number of bytes kept for reuse.
  int64_t kept_bytes() const;

 private:
  PagePool(std::shared_ptr<MemoryBudget> budget, Source source);

  // `bytes` (whole pages) from a kept piece that is at most 1/8 larger; unmaps its rest. nullptr if
  // there is none.
  std::byte* TakeKept(int64_t bytes);
  // Unmaps kept pieces until at most `bytes` are kept.
  void ShrinkLocked(int64_t bytes) REQUIRES(mutex_);
  void GiveBack(std::byte* data, int64_t size);

  const std::shared_ptr<MemoryBudget> budget_;
  const Source source_;
  mutable Mutex mutex_;
  std::multimap<int64_t, std::byte*> kept_ GUARDED_BY(mutex_);  // Key: size.
  int64_t kept_bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_STAGING_PAGE_POOL_H_

#include "worker/staging/page_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"

namespace annulus {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kHugePage = int64_t{2} << 20;

int64_t RoundUp(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Memory and its reservation, destroyed together. Without a source the reservation goes first, so
// that the pool may keep memory up to the whole budget. With a source the memory goes first, so
// that the next holder of the reservation finds it free.
struct Lease {
  explicit Lease(bool of_source) : memory_first(of_source) {}
  ~Lease() {
    if (memory_first) memory = nullptr;
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  const bool memory_first;
  std::shared_ptr<void> memory;
  Reservation reservation;
};

}  // namespace

std::shared_ptr<PagePool> PagePool::Create(std::shared_ptr<MemoryBudget> budget, Source source) {
  return std::shared_ptr<PagePool>(new PagePool(std::move(budget), std::move(source)));
}

PagePool::PagePool(std::shared_ptr<MemoryBudget> budget, Source source)
    : budget_(std::move(budget)), source_(std::move(source)) {}

PagePool::~PagePool() {
  MutexLock lock(&mutex_);
  ShrinkLocked(0);
}

int64_t PagePool::kept_bytes() const {
  MutexLock lock(&mutex_);
  return kept_bytes_;
}

absl::StatusOr<std::shared_ptr<std::byte>> PagePool::Allocate(int64_t bytes, int64_t padding) {
  ASSIGN_OR_RETURN(Reservation reservation, budget_->Reserve(bytes));
  const int64_t size = RoundUp(std::max<int64_t>(1, bytes + padding));
  auto lease = std::make_shared<Lease>(source_ != nullptr);
  if (std::shared_ptr<std::byte> memory = source_ ? source_(size) : nullptr; memory != nullptr) {
    std::byte* const data = memory.get();
    lease->memory = std::move(memory);
    lease->reservation = std::move(reservation);
    return std::shared_ptr<std::byte>(std::move(lease), data);
  }
  std::byte* data = TakeKept(size);
  if (data == nullptr) {
    void* fresh = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fresh == MAP_FAILED) {
      return MakeError(absl::StatusCode::kResourceExhausted,
                       absl::StrCat("cannot allocate ", size, " bytes of memory"),
                       {"OUT_OF_MEMORY", {{"requested_bytes", absl::StrCat(size)}}, {}, {}});
    }
    // Only a hint: small pages work too.
    if (size >= kHugePage) madvise(fresh, size, MADV_HUGEPAGE);
    data = static_cast<std::byte*>(fresh);
  }
  lease->reservation = std::move(reservation);
  lease->memory = std::shared_ptr<void>(data, [pool = shared_from_this(), size](void* memory) {
    pool->GiveBack(static_cast<std::byte*>(memory), size);
  });
  return std::shared_ptr<std::byte>(std::move(lease), data);
}

std::byte* PagePool::TakeKept(int64_t bytes) {
  MutexLock lock(&mutex_);
  const auto kept = kept_.lower_bound(bytes);
  if (kept != kept_.end() && kept->first <= bytes + bytes / 8) {
    std::byte* data = kept->second;
    // Memory beyond the request is not charged, so it is unmapped.
    if (kept->first > bytes) munmap(data + bytes, kept->first - bytes);
    kept_bytes_ -= kept->first;
    kept_.erase(kept);
    return data;
  }
  // The reservation is already counted, so the pool may keep the rest of the budget.
  ShrinkLocked(std::max<int64_t>(0, budget_->limit_bytes() - budget_->used_bytes()));
  return nullptr;
}

void PagePool::ShrinkLocked(int64_t bytes) {
  while (kept_bytes_ > bytes) {
    const auto largest = std::prev(kept_.end());
    munmap(largest->second, largest->first);
    kept_bytes_ -= largest->first;
    kept_.erase(largest);
  }
}

void PagePool::GiveBack(std::byte* data, int64_t size) {
  if (source_) {
    // The source's memory already has the size of the budget.
    munmap(data, size);
    return;
  }
  MutexLock lock(&mutex_);
  kept_.emplace(size, data);
  kept_bytes_ += size;
  ShrinkLocked(std::max<int64_t>(0, budget_->limit_bytes() - budget_->used_bytes()));
}

}  // namespace annulus

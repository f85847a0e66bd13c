#include "worker/staging/memory_budget.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace annulus {

Reservation::Reservation(std::shared_ptr<MemoryBudget> budget, int64_t bytes)
    : budget_(std::move(budget)), bytes_(bytes) {}

Reservation::Reservation(Reservation&& other) noexcept
    : budget_(std::move(other.budget_)), bytes_(std::exchange(other.bytes_, 0)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  std::swap(budget_, other.budget_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Reservation::~Reservation() {
  if (budget_ != nullptr) budget_->used_.fetch_sub(bytes_, std::memory_order_acq_rel);
}

MemoryBudget::MemoryBudget(absl::string_view name, int64_t limit_bytes)
    : name_(name), limit_(limit_bytes) {}

std::shared_ptr<MemoryBudget> MemoryBudget::Create(absl::string_view name, int64_t limit_bytes) {
  return std::shared_ptr<MemoryBudget>(new MemoryBudget(name, limit_bytes));
}

absl::StatusOr<Reservation> MemoryBudget::Reserve(int64_t bytes) {
  int64_t used = used_.load(std::memory_order_relaxed);
  do {
    if (bytes < 0 || bytes > limit_ - used) {
      return MakeError(absl::StatusCode::kResourceExhausted,
                       absl::StrCat(bytes, " bytes do not fit the ", name_, " budget: ", used,
                                    " of ", limit_, " bytes are in use"),
                       {"BUDGET_EXCEEDED",
                        {{"budget", name_},
                         {"requested_bytes", absl::StrCat(bytes)},
                         {"used_bytes", absl::StrCat(used)},
                         {"limit_bytes", absl::StrCat(limit_)}},
                        {},
                        {}});
    }
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_acq_rel));
  return Reservation(shared_from_this(), bytes);
}

}  // namespace annulus

#ifndef ANNULUS_WORKER_STAGING_MEMORY_BUDGET_H_
#define ANNULUS_WORKER_STAGING_MEMORY_BUDGET_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

class MemoryBudget;

// Bytes taken from a budget. The destructor returns them, on any thread. Movable.
class Reservation {
 public:
  Reservation() = default;  // Reserves nothing.
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation();

  int64_t bytes() const { return bytes_; }

 private:
  friend class MemoryBudget;
  Reservation(std::shared_ptr<MemoryBudget> budget, int64_t bytes);

  std::shared_ptr<MemoryBudget> budget_;
  int64_t bytes_ = 0;
};

// A limit of bytes. The sum of all existing reservations never exceeds it. Thread-safe, lock-free.
class MemoryBudget : public std::enable_shared_from_this<MemoryBudget> {
 public:
  // `name` ("staging", "device") appears in error messages. `limit_bytes` >= 0.
  static std::shared_ptr<MemoryBudget> Create(absl::string_view name, int64_t limit_bytes);

  // Reserves `bytes` (>= 0), or RESOURCE_EXHAUSTED / BUDGET_EXCEEDED. Never waits.
  absl::StatusOr<Reservation> Reserve(int64_t bytes);

  int64_t used_bytes() const { return used_.load(std::memory_order_acquire); }
  int64_t limit_bytes() const { return limit_; }

 private:
  friend class Reservation;
  MemoryBudget(absl::string_view name, int64_t limit_bytes);

  const std::string name_;
  const int64_t limit_;
  std::atomic<int64_t> used_{0};
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_STAGING_MEMORY_BUDGET_H_

#ifndef ANNULUS_SERVER_GATEWAY_INLINE_WORKERS_H_
#define ANNULUS_SERVER_GATEWAY_INLINE_WORKERS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "base/work_queue.h"

namespace annulus {

// Threads, one by default, for work that must not run on gRPC's threads, and a budget for its
// memory. Thread-safe.
class InlineWorkers {
 public:
  struct Options {
    int threads = 1;
    // The most bytes that all reservations hold together.
    int64_t budget_bytes = 0;
  };
  explicit InlineWorkers(Options options);

  // A share of the budget, held until the last copy is destroyed, which may be after this object.
  // Errors: INVALID_ARGUMENT / LIMIT_EXCEEDED for more than the whole budget; RESOURCE_EXHAUSTED /
  // QUEUE_FULL if other shares leave too little.
  absl::StatusOr<std::shared_ptr<void>> Reserve(int64_t bytes);

  // The number of running calls (ConcurrencyLimiter) bounds the posted work.
  void Post(std::function<void()> work) { queue_.PostAlways(std::move(work)); }

 private:
  struct Budget;

  const std::shared_ptr<Budget> budget_;
  WorkQueue queue_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_GATEWAY_INLINE_WORKERS_H_

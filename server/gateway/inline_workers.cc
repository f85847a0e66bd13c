#include "server/gateway/inline_workers.h"

#include <atomic>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace annulus {

struct InlineWorkers::Budget {
  explicit Budget(int64_t limit) : limit(limit) {}
  const int64_t limit;
  std::atomic<int64_t> used{0};
};

InlineWorkers::InlineWorkers(Options options)
    : budget_(std::make_shared<Budget>(options.budget_bytes)),
      queue_(/*limit=*/0, options.threads) {}

absl::StatusOr<std::shared_ptr<void>> InlineWorkers::Reserve(int64_t bytes) {
  if (bytes > budget_->limit) {
    return MakeError(
        absl::StatusCode::kInvalidArgument,
        absl::StrCat("a call of ", bytes, " bytes is above the limit of ", budget_->limit,
                     " (--max-inline-bytes)"),
        ErrorDetail{"LIMIT_EXCEEDED",
                    {{"limit", absl::StrCat(budget_->limit)}, {"requested", absl::StrCat(bytes)}},
                    {},
                    {}});
  }
  if (budget_->used.fetch_add(bytes) + bytes > budget_->limit) {
    budget_->used.fetch_sub(bytes);
    return MakeError(absl::StatusCode::kResourceExhausted,
                     absl::StrCat("the running inline calls leave no room for ", bytes, " bytes"),
                     ErrorDetail{"QUEUE_FULL",
                                 {{"limit_bytes", absl::StrCat(budget_->limit)},
                                  {"requested_bytes", absl::StrCat(bytes)}},
                                 {},
                                 absl::Seconds(1)});
  }
  return std::shared_ptr<void>(nullptr,
                               [budget = budget_, bytes](void*) { budget->used.fetch_sub(bytes); });
}

}  // namespace annulus

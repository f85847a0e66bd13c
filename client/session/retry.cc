#include "client/session/retry.h"

#include <algorithm>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/error.h"

namespace annulus {

std::optional<absl::Duration> RetryPolicy::Next(const absl::Status& status, absl::Time now,
                                                absl::Time deadline) {
  const ErrorDetail detail = DetailOf(status);
  const bool lost = status.code() == absl::StatusCode::kAborted && detail.reason == "GROUP_LOST";
  const bool may = detail.retry_after.has_value() ||
                   status.code() == absl::StatusCode::kUnavailable || lost ||
                   (lost_ && (detail.reason == "INSUFFICIENT_WORKERS" ||
                              // Before the loss there were enough workers, and the job was served.
                              detail.reason == "NOT_SERVED"));
  lost_ = lost_ || lost;
  if (status.ok() || !may || left_ <= 0) return std::nullopt;
  --left_;
  const absl::Duration backoff = backoff_ * (1 - 0.2 * random_());
  const absl::Duration delay = detail.retry_after.value_or(backoff);
  backoff_ = std::min(std::max(backoff_, delay) * 2, absl::Seconds(5));
  if (now + delay >= deadline) return std::nullopt;
  return delay;
}

absl::Status AfterAttempts(const absl::Status& last, const std::vector<absl::Status>& earlier) {
  if (last.ok() || earlier.empty()) return last;
  const auto other = std::find_if(
      earlier.rbegin(), earlier.rend(),
      [&](const absl::Status& status) { return ReasonOrCode(status) != ReasonOrCode(last); });
  const bool alike = other == earlier.rend();
  ErrorDetail detail = DetailOf(last);
  detail.metadata["attempts"] = absl::StrCat(earlier.size() + 1);
  detail.metadata["earlier_attempt"] = ErrorText(alike ? earlier.back() : *other);
  return MakeError(
      last.code(),
      absl::StrCat(last.message(), " (attempt ", earlier.size() + 1,
                   alike ? "" : absl::StrCat("; an earlier one: ", ErrorText(*other)), ")"),
      detail);
}

double RandomFraction() {
  thread_local std::minstd_rand random{std::random_device{}()};
  return std::uniform_real_distribution<double>(0, 1)(random);
}

}  // namespace annulus

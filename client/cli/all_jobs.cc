#include "client/cli/all_jobs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace annulus {

absl::StatusOr<v1::ListJobsResponse> AllJobs(absl::Duration timeout, const ListJobsCall& call,
                                             const std::function<absl::Time()>& now) {
  constexpr absl::Duration kCallTimeout = absl::Seconds(10);
  const absl::Time deadline = now() + timeout;
  v1::ListJobsResponse all;
  v1::ListJobsRequest request;
  do {
    const absl::Duration left = deadline - now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(
          absl::StrCat("the time limit passed after listing ", all.jobs_size(), " jobs"));
    }
    ASSIGN_OR_RETURN(const v1::ListJobsResponse page, call(request, std::min(kCallTimeout, left)));
    all.mutable_jobs()->MergeFrom(page.jobs());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return all;
}

int KeepLatest(int count, v1::ListJobsResponse* jobs) {
  int ended = 0;
  auto* const list = jobs->mutable_jobs();
  const auto is_old = [&](const v1::Job& job) {
    const bool held = job.kept_state().status() == v1::KeptState::STATUS_HELD;
    return job.has_end_time() && !held && ++ended > count;
  };
  list->erase(std::remove_if(list->begin(), list->end(), is_old), list->end());
  return std::max(ended - count, 0);
}

}  // namespace annulus

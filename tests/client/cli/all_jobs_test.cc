#include "client/cli/all_jobs.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace annulus {
namespace {

// Pages of three jobs. Each call takes a second.
struct Jobs {
  explicit Jobs(int jobs) : count(jobs) {}

  const int count;
  absl::Time now = absl::UnixEpoch();
  std::vector<absl::Duration> limits;

  absl::StatusOr<v1::ListJobsResponse> List(const v1::ListJobsRequest& request,
                                            absl::Duration limit) {
    limits.push_back(limit);
    now += absl::Seconds(1);
    int first = 0;
    EXPECT_TRUE(request.page_token().empty() || absl::SimpleAtoi(request.page_token(), &first));
    v1::ListJobsResponse page;
    for (int i = first; i < first + 3 && i < count; ++i)
      page.add_jobs()->set_job_id(absl::StrCat(i));
    if (first + 3 < count) page.set_next_page_token(absl::StrCat(first + 3));
    return page;
  }
  absl::StatusOr<v1::ListJobsResponse> All(absl::Duration timeout) {
    return AllJobs(
        timeout,
        [this](const v1::ListJobsRequest& request, absl::Duration limit) {
          return List(request, limit);
        },
        [this] { return now; });
  }
};

TEST(AllJobsTest, EveryPageIsReadInOrder) {
  for (const int count : {0, 1, 3, 4, 10}) {
    Jobs jobs(count);
    const auto all = jobs.All(absl::Minutes(1));
    ASSERT_TRUE(all.ok()) << all.status();
    ASSERT_EQ(all->jobs_size(), count);
    for (int i = 0; i < count; ++i) EXPECT_EQ(all->jobs(i).job_id(), absl::StrCat(i));
    EXPECT_EQ(all->next_page_token(), "");
    for (const absl::Duration limit : jobs.limits) EXPECT_EQ(limit, absl::Seconds(10));
  }
}

TEST(AllJobsTest, CallsHaveWhatIsLeftOfTheTimeAndNoMore) {
  Jobs jobs(100);
  const auto all = jobs.All(absl::Milliseconds(2500));
  EXPECT_EQ(all.status().code(), absl::StatusCode::kDeadlineExceeded) << all.status();
  EXPECT_EQ(jobs.limits,
            std::vector<absl::Duration>(
                {absl::Milliseconds(2500), absl::Milliseconds(1500), absl::Milliseconds(500)}));
}

TEST(AllJobsTest, TheLatestOfThoseThatHaveEndedAndAllOthersStay) {
  v1::ListJobsResponse jobs;
  const auto add = [&](const std::string& id, bool ended, bool held) {
    v1::Job* const job = jobs.add_jobs();
    job->set_job_id(id);
    if (ended) job->mutable_end_time()->set_seconds(1);
    if (held) job->mutable_kept_state()->set_status(v1::KeptState::STATUS_HELD);
  };
  add("ended", true, false);
  add("runs", false, false);
  add("held", true, true);
  add("ended too", true, false);
  add("ended before", true, false);
  add("waits", false, false);
  add("held before", true, true);
  add("ended first", true, false);
  jobs.mutable_jobs(7)->mutable_kept_state()->set_status(v1::KeptState::STATUS_RELEASED);
  EXPECT_EQ(KeepLatest(4, &jobs), 0);
  EXPECT_EQ(jobs.jobs_size(), 8);
  EXPECT_EQ(KeepLatest(2, &jobs), 2);
  std::string left;
  for (const v1::Job& job : jobs.jobs()) absl::StrAppend(&left, job.job_id(), ", ");
  EXPECT_EQ(left, "ended, runs, held, ended too, waits, held before, ");
  EXPECT_EQ(KeepLatest(0, &jobs), 2);
}

}  // namespace
}  // namespace annulus

#ifndef ANNULUS_TESTS_CLIENT_FAKE_KEPT_H_
#define ANNULUS_TESTS_CLIENT_FAKE_KEPT_H_

#include "annulus/v1/jobs.pb.h"
#include "base/mutex.h"

namespace annulus {

// Kept states of a FakeService's jobs, and its information about the last job. Any thread.
class FakeKept {
 public:
  // If `runs`, the job runs until it is cancelled.
  explicit FakeKept(bool runs) : runs_(runs) {}

  // Call when a job has been computed.
  void Keep(const v1::AttentionSpec& spec) EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    if (spec.forward().has_keep_state() && !runs_) ++held_;
  }
  v1::Job Get() EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    v1::Job job;
    job.set_job_id("job-1");
    job.set_state(cancelled_ ? v1::Job::STATE_CANCELLED
                  : runs_    ? v1::Job::STATE_DRAINING
                             : v1::Job::STATE_SUCCEEDED);
    job.mutable_stats()->set_attempts(1);
    if (held_ > 0) job.mutable_kept_state()->set_status(v1::KeptState::STATUS_HELD);
    return job;
  }
  void Cancel() EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    cancelled_ = runs_;
  }
  void Release() EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    --held_;
  }
  // The number of states that have not been released.
  int held() EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    return held_;
  }
  bool cancelled() EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    return cancelled_;
  }

 private:
  const bool runs_;
  Mutex mutex_;
  int held_ GUARDED_BY(mutex_) = 0;
  bool cancelled_ GUARDED_BY(mutex_) = false;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_CLIENT_FAKE_KEPT_H_

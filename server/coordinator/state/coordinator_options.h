#ifndef ANNULUS_SERVER_COORDINATOR_STATE_COORDINATOR_OPTIONS_H_
#define ANNULUS_SERVER_COORDINATOR_STATE_COORDINATOR_OPTIONS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "attention/validate/validate.h"
#include "base/version.h"

namespace annulus {

inline Limits DefaultLimits() {
  Limits limits;
  limits.max_keep_state = absl::Minutes(10);
  return limits;
}

// The device kind of workers. kAny: that of the first worker present.
enum class WorkerKind { kAny, kCpu, kCuda };

// Every limit and interval of the coordinator's decisions.
struct CoordinatorOptions {
  std::string version = kVersion;
  Limits limits = DefaultLimits();
  // Limits of other components, which GetServerInfo reports.
  int32_t max_chunk_bytes = 1 << 20;
  int64_t max_inline_elements = 1 << 16;

  // Workers. A worker is suspect after `missed_beats`, and lost when its lease has run out.
  absl::Duration beat_interval = absl::Seconds(1);
  absl::Duration lease = absl::Seconds(3);
  int32_t missed_beats = 2;
  int32_t max_workers = 1024;
  WorkerKind worker_kind = WorkerKind::kAny;
  // The number of ready workers below which the service is not ready and accepts no job.
  int32_t min_workers = 1;
  // The largest number of commands that a worker has not acknowledged, and of their bytes. Above it
  // the worker is lost.
  size_t max_unacknowledged = 8192;
  size_t max_unacknowledged_bytes = size_t{256} << 20;

  // Groups are formed when the membership has not changed for `formation_delay`. A failed formation
  // is repeated after a pause, which doubles from `formation_delay` to `max_formation_pause`.
  absl::Duration formation_delay = absl::Milliseconds(100);
  absl::Duration formation_timeout = absl::Seconds(15);
  absl::Duration max_formation_pause = absl::Seconds(5);
  // A worker that has not answered AbortGroup, CloseGroup or Drop after this time is lost. A
  // cancelled job whose issued segments have not ended after this time aborts its group.
  absl::Duration answer_timeout = absl::Seconds(15);

  // Jobs.
  size_t max_queued_jobs = 256;
  // Memory of the requests of all jobs that have not ended or whose state is kept, and of calls
  // that have joined them. A request above it is refused (QUEUE_FULL).
  int64_t max_request_bytes = int64_t{256} << 20;
  // The largest number of bytes of a page of ListJobs, so that any gRPC client can receive it.
  size_t max_page_bytes = size_t{3} << 20;
  size_t max_active_jobs = 4096;      // Placed and not ended.
  int32_t jobs_ahead_per_group = 2;   // Placed on a group and not yet started.
  int32_t solo_jobs_per_worker = 16;  // Placed on a worker and not yet computed.
  int32_t segments_outstanding = 2;
  int32_t max_attempts = 2;
  size_t max_calls_per_job = 64;
  absl::Duration max_timeout = absl::Hours(1);
  // An upload must be complete after this time plus the time of its bytes at the floor rate.
  absl::Duration upload_grace = absl::Seconds(30);
  int64_t upload_floor_bytes_per_second = int64_t{1} << 20;
  absl::Duration default_result_ttl = absl::Seconds(60);
  absl::Duration max_result_ttl = absl::Hours(1);
  // States that are kept for gradients jobs: their share of a worker's staging memory, and the
  // largest number of jobs that keep one.
  double kept_share = 0.5;
  size_t max_kept_states = 1024;
  // The largest number of a principal's jobs that will keep their state and wait for states to end.
  size_t max_waiting_keepers = 64;
  // How long, and how many, ended jobs can still be requested.
  absl::Duration job_retention = absl::Minutes(5);
  size_t max_retained_jobs = 1000;
  // A waiting job that no present worker could ever serve, or whose group does not form, ends after
  // this time.
  absl::Duration regroup_wait = absl::Seconds(10);
  // Predicted length of a segment.
  absl::Duration segment_target = absl::Milliseconds(100);
  // RetryInfo of errors for which nothing better is known.
  absl::Duration retry_after = absl::Seconds(1);
  // Jobs that have not ended after this time from Drain on are ended.
  absl::Duration drain_grace = absl::Seconds(30);
  // Requests with at most this many sequences and rows are planned inside Handle, if that takes at
  // most inline_plan_time (planning/plan_time.h).
  int64_t inline_plan_sequences = 64;
  int64_t inline_plan_rows = 262144;  // Queries and keys: long steps are cut by them.
  absl::Duration inline_plan_time = absl::Milliseconds(2);
  // Plans made elsewhere that take at most this time do not wait for longer ones.
  absl::Duration quick_plan_time = absl::Milliseconds(50);
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_COORDINATOR_OPTIONS_H_

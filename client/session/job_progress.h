#ifndef ANNULUS_CLIENT_SESSION_JOB_PROGRESS_H_
#define ANNULUS_CLIENT_SESSION_JOB_PROGRESS_H_

#include <cstdint>

#include "annulus/v1/jobs.pb.h"

namespace annulus {

// The progress of a job, for display.
struct JobProgress {
  v1::Job::State state = v1::Job::STATE_UNSPECIFIED;
  int32_t attempt = 0;
  int32_t segments_done = 0;
  int32_t segments = 0;
  int64_t bytes_sent = 0, bytes_to_send = 0;
  int64_t bytes_received = 0, bytes_to_receive = 0;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_SESSION_JOB_PROGRESS_H_

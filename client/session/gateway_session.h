#ifndef ANNULUS_CLIENT_SESSION_GATEWAY_SESSION_H_
#define ANNULUS_CLIENT_SESSION_GATEWAY_SESSION_H_

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "annulus/v1/attention.pb.h"
#include "attention/spec/spec.h"
#include "client/session/job_session.h"
#include "client/transport/stream_pool.h"
#include "client/transport/tensor_memory.h"

namespace annulus {

// Pooled AttendMany calls, and whether the gateway supports them. Thread-safe. Times are on the
// clock of base/steady_time.h.
class AttendManyCalls {
 public:
  explicit AttendManyCalls(StreamPool::Options options)
      : pool_(std::make_shared<StreamPool>(std::move(options))) {}

  const std::shared_ptr<StreamPool>& pool() const { return pool_; }
  // After UNIMPLEMENTED, AttendMany is not tried for one minute. The server may be an older version
  // in the middle of a rollout.
  bool MayAsk(absl::Time now) const { return absl::ToUnixNanos(now) >= ask_again_; }
  void IsUnknown(absl::Time now) { ask_again_ = absl::ToUnixNanos(now + absl::Minutes(1)); }
  // A new tag for a job, which the answer repeats. Never 0.
  uint64_t NewTag() { return ++tag_; }

 private:
  const std::shared_ptr<StreamPool> pool_;
  std::atomic<int64_t> ask_again_{std::numeric_limits<int64_t>::min()};
  std::atomic<uint64_t> tag_{0};
};

struct GatewayOptions {
  std::shared_ptr<grpc::Channel> channel;
  Metadata metadata;  // For an Attend call; pooled calls have the pool's.
  // For small jobs that may be sent twice. Null: every job has its own Attend call.
  std::shared_ptr<AttendManyCalls> calls;
  absl::Time deadline = absl::InfiniteFuture();  // On the clock of base/steady_time.h.
  v1::AttendRequest::Start start;
  AttentionSpec spec;  // Must equal start.spec.
  InputMemory inputs;
  OutputMemory outputs;
};

// One job through the gateway: on its own Attend call, or on a pooled AttendMany call if it has at
// most 512 KiB of inputs and 1 MiB of outputs, no request_id and no kept state. Calls the same
// observer as JobSession, but never OnOutput(): outputs go to GatewayOptions::outputs. Thread-safe;
// no method blocks. Lives until OnDone() has returned, even if the handle is destroyed before.
class GatewaySession {
 public:
  static std::shared_ptr<GatewaySession> Start(GatewayOptions options, JobObserver* observer);

  void Cancel(absl::Status status = absl::CancelledError("cancelled by the client"));
  // Cancels the job. The session ends with `status`, unless it has ended before.

 private:
  class Impl;
  explicit GatewaySession(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<Impl> impl_;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_SESSION_GATEWAY_SESSION_H_

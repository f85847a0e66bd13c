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

// AttendMany calls that are kept, and whether the gateway has them. Thread-safe.
class AttendManyCalls {
 public:
  explicit AttendManyCalls(StreamPool::Options options)
      : pool_(std::make_shared<StreamPool>(std::move(options))) {}

  const std::shared_ptr<StreamPool>& pool() const { return pool_; }
  // Who does not know the method is not asked for a minute: one of an earlier version, behind an
  // address where all are replaced, say. Times by base/steady_time.h.
  bool MayAsk(absl::Time now) const { return absl::ToUnixNanos(now) >= ask_again_; }
  void IsUnknown(absl::Time now) { ask_again_ = absl::ToUnixNanos(now + absl::Minutes(1)); }
  // Of a job; its answer has it too. Not 0.
  uint64_t NewTag() { return ++tag_; }

 private:
  const std::shared_ptr<StreamPool> pool_;
  std::atomic<int64_t> ask_again_{std::numeric_limits<int64_t>::min()};
  std::atomic<uint64_t> tag_{0};
};

struct GatewayOptions {
  std::shared_ptr<grpc::Channel> channel;
  Metadata metadata;  // Of an Attend call.
  // For small jobs that may be sent twice; nullptr: each has an Attend call of its own.
  std::shared_ptr<AttendManyCalls> calls;
  absl::Time deadline = absl::InfiniteFuture();  // By base/steady_time.h.
  v1::AttendRequest::Start start;
  AttentionSpec spec;  // What start.spec says.
  InputMemory inputs;
  OutputMemory outputs;
};

// One job by an Attend call, or on an AttendMany call: everything passes the gateway. Tells the
// same observer as JobSession, and OnOutput never. Thread-safe; no method waits. Lives on until
// OnDone also when the handle is dropped.
class GatewaySession {
 public:
  static std::shared_ptr<GatewaySession> Start(GatewayOptions options, JobObserver* observer);

  void Cancel(absl::Status status = absl::CancelledError("cancelled by the client"));

 private:
  class Impl;
  explicit GatewaySession(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<Impl> impl_;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_SESSION_GATEWAY_SESSION_H_

#ifndef ANNULUS_SERVER_SERVICES_HEALTH_SERVICE_H_
#define ANNULUS_SERVER_SERVICES_HEALTH_SERVICE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "base/mutex.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/support/byte_buffer.h"

namespace annulus {

class HealthWatch;

// The subject of a health check. kUnknown: no service has the name.
enum class HealthSubject : uint8_t { kReadiness, kLiveness, kUnknown };

// grpc.health.v1.Health, from generated code so that reflection describes it. Thread-safe.
// - "", the names of the public services and "readiness" are SERVING while the coordinator accepts
//   jobs.
// - "liveness" is SERVING while `alive` returns true. A Watch of it receives this once.
// - Any other name: NOT_FOUND on Check, SERVICE_UNKNOWN on Watch.
// - Above `max_watches` open Watch calls, a new one ends with RESOURCE_EXHAUSTED.
// - Requests are small (TakeQuestion) and are not kept.
class HealthService final : public grpc::health::v1::Health::WithRawCallbackMethod_Check<
                                grpc::health::v1::Health::WithRawCallbackMethod_Watch<
                                    grpc::health::v1::Health::Service>> {
 public:
  explicit HealthService(std::function<bool()> alive, size_t max_watches = 1024)
      : alive_(std::move(alive)), max_watches_(max_watches) {}

  void SetReady(bool ready) EXCLUDES(mutex_);
  // Ends every Watch: a server does not shut down while one is open. Later ones end at once.
  void Stop() EXCLUDES(mutex_);

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* arrived,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Watch(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* arrived) override;

 private:
  friend class HealthWatch;
  grpc::health::v1::HealthCheckResponse::ServingStatus StatusLocked(HealthSubject subject) const
      REQUIRES(mutex_);
  void Forget(HealthWatch* watch) EXCLUDES(mutex_);

  const std::function<bool()> alive_;
  const size_t max_watches_;
  Mutex mutex_;
  bool ready_ GUARDED_BY(mutex_) = false;
  bool stopped_ GUARDED_BY(mutex_) = false;
  std::set<std::shared_ptr<HealthWatch>> watches_ GUARDED_BY(mutex_);
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_SERVICES_HEALTH_SERVICE_H_

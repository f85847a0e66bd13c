#ifndef ANNULUS_TESTS_WORKER_COMM_FAULTY_COMMUNICATOR_H_
#define ANNULUS_TESTS_WORKER_COMM_FAULTY_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "worker/comm/communicator_base.h"

namespace annulus {

struct Faults {
  // Minimum time between Start and the arrival of a step's messages.
  absl::Duration delay = absl::ZeroDuration();
  // Receive rate of a rank. 0: no limit. Messages queue up.
  double bytes_per_second = 0;
  // Start fails at this message (sends and receives, counted from 1). 0: never.
  int64_t fail_at_message = 0;
};

// A communicator whose link is slow or breaks. Delays the return of Join; the inner communicator
// moves the bytes. The counters show that a fault occurred.
class FaultyCommunicator final : public CommunicatorBase {
 public:
  FaultyCommunicator(std::unique_ptr<Communicator> inner, const Faults& faults)
      : CommunicatorBase(inner->rank(), inner->size()), faults_(faults), inner_(std::move(inner)) {}

  // Joins that waited; bytes delayed by the rate limit; messages that failed.
  int64_t delayed() const { return delayed_; }
  int64_t throttled_bytes() const { return throttled_bytes_; }
  int64_t failed() const { return failed_; }

 private:
  absl::StatusOr<std::string> DoBootstrap() override { return inner_->Bootstrap(); }
  absl::Status DoConnect(absl::Span<const std::string> bootstraps, absl::Time deadline) override {
    return inner_->Connect(bootstraps, deadline);
  }
  absl::Status DoStart(absl::Span<const SendMessage> sends,
                       absl::Span<const ReceiveMessage> receives) override;
  absl::Status DoJoin(absl::Time deadline) override EXCLUDES(mutex_);
  void Interrupt() override EXCLUDES(mutex_);
  void Leave() override;

  const Faults faults_;
  const std::unique_ptr<Communicator> inner_;
  // The time at which the open step's messages have arrived.
  absl::Time ready_ = absl::InfinitePast();
  absl::Time link_free_ = absl::InfinitePast();
  int64_t messages_ = 0, bytes_ = 0, delayed_ = 0, throttled_bytes_ = 0, failed_ = 0;
  Mutex mutex_;
  CondVar interrupted_;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_COMM_FAULTY_COMMUNICATOR_H_

#ifndef ANNULUS_TESTS_WORKER_COMM_FORWARDING_COMMUNICATOR_H_
#define ANNULUS_TESTS_WORKER_COMM_FORWARDING_COMMUNICATOR_H_

#include <string>

#include "worker/comm/communicator.h"

namespace annulus {

// Forwards all calls to another communicator. A base class for wrappers.
class ForwardingCommunicator : public Communicator {
 public:
  absl::StatusOr<std::string> Bootstrap() override { return inner().Bootstrap(); }
  absl::Status Connect(absl::Span<const std::string> bootstraps, absl::Time deadline) override {
    return inner().Connect(bootstraps, deadline);
  }
  absl::Status Start(absl::Span<const SendMessage> sends,
                     absl::Span<const ReceiveMessage> receives) override {
    return inner().Start(sends, receives);
  }
  absl::Status Join(absl::Time deadline) override { return inner().Join(deadline); }
  void Abort() override { inner().Abort(); }
  int32_t rank() const override { return inner().rank(); }
  int32_t size() const override { return inner().size(); }
  int64_t bytes_received() const override { return inner().bytes_received(); }

 protected:
  virtual Communicator& inner() const = 0;
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_COMM_FORWARDING_COMMUNICATOR_H_

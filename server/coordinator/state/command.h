#ifndef ANNULUS_SERVER_COORDINATOR_STATE_COMMAND_H_
#define ANNULUS_SERVER_COORDINATOR_STATE_COMMAND_H_

#include <cstddef>
#include <memory>
#include <string>

#include "annulus/control/v1/control.pb.h"

namespace annulus {

// A command to a worker. The spec of a Reserve may have megabytes and is the same for each of 64
// ranks. `message` leaves it out, and all copies of the command share its bytes.
struct Command {
  control::v1::WorkerCommand message;
  std::shared_ptr<const std::string> spec = nullptr;  // Serialized; nullptr: none.

  // Approximate number of bytes on the wire, including the spec.
  size_t ByteSizeLong() const;
  // All bytes of the command on the wire except the spec's own, which follow them.
  std::string Opening() const;
};

// The message with the spec in its place, as the worker receives it.
control::v1::WorkerCommand Whole(const Command& command);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_COMMAND_H_

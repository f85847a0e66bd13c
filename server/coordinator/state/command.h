#ifndef ANNULUS_SERVER_COORDINATOR_STATE_COMMAND_H_
#define ANNULUS_SERVER_COORDINATOR_STATE_COMMAND_H_

#include <cstddef>
#include <memory>
#include <string>

#include "annulus/control/v1/control.pb.h"

namespace annulus {

// What a worker is told. A Reserve's spec may be megabytes and is the same for each of 64 ranks: it
// is left out of `message`, and all that keep or write the command share its bytes.
struct Command {
  control::v1::WorkerCommand message;
  std::shared_ptr<const std::string> spec = nullptr;  // Serialized; nullptr: none.

  // On the wire, about; with the spec.
  size_t ByteSizeLong() const;
  // All of the command on the wire but the spec's own bytes, which follow it.
  std::string Opening() const;
};

// With the spec in its place, as a worker gets it.
control::v1::WorkerCommand Whole(const Command& command);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COORDINATOR_STATE_COMMAND_H_

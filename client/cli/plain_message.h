#ifndef ANNULUS_CLIENT_CLI_PLAIN_MESSAGE_H_
#define ANNULUS_CLIENT_CLI_PLAIN_MESSAGE_H_

#include <string>

#include "absl/status/status.h"

namespace annulus {

// What an error says, for people: gRPC's own words about connections in plain ones, and something
// where a server that knows nothing of us says the code alone.
std::string PlainMessage(const absl::Status& status);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_PLAIN_MESSAGE_H_

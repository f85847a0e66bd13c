#ifndef ANNULUS_CLIENT_CLI_PLAIN_MESSAGE_H_
#define ANNULUS_CLIENT_CLI_PLAIN_MESSAGE_H_

#include <string>

#include "absl/status/status.h"

namespace annulus {

// The message of an error, for people: texts of gRPC about connections become plain ones, and a
// code without a message (from a server that is no Annulus) gets one.
std::string PlainMessage(const absl::Status& status);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_PLAIN_MESSAGE_H_

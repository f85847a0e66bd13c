#ifndef ANNULUS_CLIENT_CLI_FLAGS_SERVICE_FLAGS_H_
#define ANNULUS_CLIENT_CLI_FLAGS_SERVICE_FLAGS_H_

#include <string>

#include "absl/time/time.h"
#include "base/command_line.h"
#include "client/client.h"

namespace annulus {

// The flags of every command that calls a coordinator.
struct ServiceFlags {
  std::string address = "127.0.0.1:8001";
  absl::Duration timeout = absl::Minutes(10);
  bool json = false;
};
// `time` is the help text of --timeout.
void AddServiceFlags(CommandLine* app, ServiceFlags* flags,
                     const std::string& time = "Limit for the whole command, retries included");

ClientOptions ClientOptionsOf(const ServiceFlags& flags);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FLAGS_SERVICE_FLAGS_H_

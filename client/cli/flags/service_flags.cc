#include "client/cli/flags/service_flags.h"

#include "base/command_line.h"

namespace annulus {

void AddServiceFlags(CommandLine* app, ServiceFlags* flags, const std::string& time) {
  AddAddress(app, {"--address", "Address of the coordinator's client port"}, &flags->address)
      .FromEnvironment("ANNULUS_ADDRESS");
  AddDuration(app, {"--timeout", time}, {absl::Milliseconds(1), absl::Hours(24)}, &flags->timeout);
  AddSwitch(app, {"--json", "Write the answer as JSON to standard output"}, &flags->json);
}

ClientOptions ClientOptionsOf(const ServiceFlags& flags) {
  ClientOptions options;
  options.address = flags.address;
  return options;
}

}  // namespace annulus

#ifndef ANNULUS_CLIENT_CLI_FLAGS_SERVICE_FLAGS_H_
#define ANNULUS_CLIENT_CLI_FLAGS_SERVICE_FLAGS_H_

#include <string>

#include "CLI/CLI.hpp"
#include "absl/time/time.h"
#include "client/client.h"

namespace annulus {

// Where the coordinator is, and how to answer: flags of every command that asks one.
struct ServiceFlags {
  std::string address = "127.0.0.1:8001";
  absl::Duration timeout = absl::Minutes(10);
  bool json = false;
};
// `time` says what --timeout is for.
void AddServiceFlags(CLI::App* app, ServiceFlags* flags,
                     const std::string& time = "Time for all of it, retries included");

ClientOptions ClientOptionsOf(const ServiceFlags& flags);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_FLAGS_SERVICE_FLAGS_H_

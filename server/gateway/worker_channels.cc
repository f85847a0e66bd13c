#include "server/gateway/worker_channels.h"

#include <utility>

#include "client/channels.h"
#include "server/gateway/transport_limits.h"

namespace annulus {

std::function<std::shared_ptr<grpc::Channel>(const std::string& endpoint)> WorkerChannels(
    std::shared_ptr<grpc::ChannelCredentials> credentials) {
  grpc::ChannelArguments arguments;
  for (const auto& [name, value] : TransportLimits()) arguments.SetInt(name, value);
  auto channels = std::make_shared<Channels>(std::move(credentials), std::move(arguments));
  return [channels](const std::string& endpoint) { return channels->Get(endpoint); };
}

}  // namespace annulus

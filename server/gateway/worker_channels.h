#ifndef ANNULUS_SERVER_GATEWAY_WORKER_CHANNELS_H_
#define ANNULUS_SERVER_GATEWAY_WORKER_CHANNELS_H_

#include <functional>
#include <memory>
#include <string>

#include "grpcpp/channel.h"
#include "grpcpp/security/credentials.h"

namespace annulus {

// For GatewayOptions::worker_channel: channels to workers' data planes, each made once and kept.
std::function<std::shared_ptr<grpc::Channel>(const std::string& endpoint)> WorkerChannels(
    std::shared_ptr<grpc::ChannelCredentials> credentials);

}  // namespace annulus

#endif  // ANNULUS_SERVER_GATEWAY_WORKER_CHANNELS_H_

#include "client/transport/channels.h"

#include "grpcpp/create_channel.h"
#include "grpcpp/support/channel_arguments.h"
#include "proto/rpc/keepalive.h"
#include "proto/rpc/message_limits.h"

namespace annulus {
namespace {

// The servers permit one ping every 10 s. A client that pings less often never gets
// "too_many_pings".
constexpr absl::Duration kKeepaliveTime = absl::Seconds(30), kKeepaliveTimeout = absl::Seconds(10);

grpc::ChannelArguments Arguments(ReadAhead read_ahead) {
  grpc::ChannelArguments arguments;
  // A proxy of the environment is for web traffic.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  for (const auto& [name, value] : Keepalive(kKeepaliveTime, kKeepaliveTimeout))
    arguments.SetInt(name, value);
  for (const auto& [name, value] : TensorTransport(read_ahead)) arguments.SetInt(name, value);
  arguments.SetMaxReceiveMessageSize(kMaxCoordinatorAnswerBytes);
  return arguments;
}

}  // namespace

std::shared_ptr<grpc::Channel> Channels::Get(const std::string& address) {
  MutexLock lock(&mutex_);
  std::shared_ptr<grpc::Channel>& channel = channels_[address];
  if (channel != nullptr) return channel;
  channel = grpc::CreateCustomChannel(address, credentials_, Arguments(read_ahead_));
  const std::shared_ptr<grpc::Channel> made = channel;
  if (channels_.size() > kMaxChannels) {
    auto first = channels_.begin();
    channels_.erase(first->first == address ? std::next(first) : first);
  }
  return made;
}

bool Channels::Connect(const std::vector<std::string>& addresses, absl::Time deadline) {
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (const std::string& address : addresses) {
    channels.push_back(Get(address));
    channels.back()->GetState(/*try_to_connect=*/true);
  }
  for (const auto& channel : channels) {
    if (!channel->WaitForConnected(absl::ToChronoTime(deadline))) return false;
  }
  return true;
}

}  // namespace annulus

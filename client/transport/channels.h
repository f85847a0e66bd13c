#ifndef ANNULUS_CLIENT_TRANSPORT_CHANNELS_H_
#define ANNULUS_CLIENT_TRANSPORT_CHANNELS_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "grpcpp/channel.h"
#include "grpcpp/security/credentials.h"
#include "proto/wire/tensor_transport.h"

namespace annulus {

// One gRPC channel for each address, created at first use and kept. Thread-safe.
class Channels {
 public:
  explicit Channels(std::shared_ptr<grpc::ChannelCredentials> credentials,
                    ReadAhead read_ahead = ReadAhead::kAdaptive)
      : credentials_(std::move(credentials)), read_ahead_(read_ahead) {}

  // Returns the channel. Does not connect and does not block. Above kMaxChannels, the channel with
  // the smallest address is dropped.
  std::shared_ptr<grpc::Channel> Get(const std::string& address) EXCLUDES(mutex_);

  // Waits until every address is connected. False if one is not connected at the deadline.
  bool Connect(const std::vector<std::string>& addresses, absl::Time deadline) EXCLUDES(mutex_);

  // The maximum number of workers of a coordinator.
  static constexpr size_t kMaxChannels = 1024;

 private:
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  const ReadAhead read_ahead_;
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_ GUARDED_BY(mutex_);
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_TRANSPORT_CHANNELS_H_

#ifndef ANNULUS_PROTO_RPC_LISTEN_H_
#define ANNULUS_PROTO_RPC_LISTEN_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"

namespace annulus {

struct ListeningServer {
  std::unique_ptr<grpc::Server> server;
  int port = 0;  // The one that is bound.
};

// Calls of a server at once that gRPC keeps a thread for, as those of reflection.
inline constexpr int kMaxBlockingCalls = 15;

// Starts what `builder` has on `address`, HOST:PORT, alone: two processes on one port would share
// its connections, so a port in use is an error. Port 0 takes a free one. The server refuses calls
// beyond kMaxBlockingCalls with RESOURCE_EXHAUSTED. UNAVAILABLE / CANNOT_LISTEN, with the cause
// where it is known.
absl::StatusOr<ListeningServer> Listen(grpc::ServerBuilder* builder, const std::string& address,
                                       const std::shared_ptr<grpc::ServerCredentials>& credentials);

}  // namespace annulus

#endif  // ANNULUS_PROTO_RPC_LISTEN_H_

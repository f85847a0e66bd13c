#ifndef ANNULUS_PROTO_RPC_LISTEN_H_
#define ANNULUS_PROTO_RPC_LISTEN_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"

namespace annulus {

struct ListeningServer {
  std::unique_ptr<grpc::Server> server;
  int port = 0;  // The bound port.
};

// The number of concurrent calls of a server that occupy a gRPC thread each, as those of reflection
// do.
inline constexpr int kMaxBlockingCalls = 15;

// Starts the services of `builder` on `address`, HOST:PORT. A port in use is an error, as two
// processes on one port would share its connections. Port 0 takes a free port. The server refuses
// blocking calls above kMaxBlockingCalls with RESOURCE_EXHAUSTED. Error: UNAVAILABLE /
// CANNOT_LISTEN, with the cause if it is known.
absl::StatusOr<ListeningServer> Listen(grpc::ServerBuilder* builder, const std::string& address,
                                       const std::shared_ptr<grpc::ServerCredentials>& credentials);

}  // namespace annulus

#endif  // ANNULUS_PROTO_RPC_LISTEN_H_

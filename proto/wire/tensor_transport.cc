#include "proto/wire/tensor_transport.h"

#include "grpc/grpc.h"

namespace annulus {

std::map<std::string, int> TensorTransport(ReadAhead read_ahead) {
  std::map<std::string, int> arguments = {{GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, 256 << 10}};
  if (read_ahead == ReadAhead::kBounded) {
    // Without the probe gRPC 1.51 keeps a connection's window at 64 KiB beyond what is being read.
    arguments[GRPC_ARG_HTTP2_BDP_PROBE] = 0;
    // A message begins with less than half of that: what it begins with uses up more, and gRPC
    // says first that the connection has room, and that the stream has in a word of its own,
    // for which the sender waits longer.
    arguments[GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES] = 31 << 10;
  }
  return arguments;
}

}  // namespace annulus

#include "proto/wire/tensor_transport.h"

#include "grpc/grpc.h"

namespace annulus {

std::map<std::string, int> TensorTransport(ReadAhead read_ahead) {
  std::map<std::string, int> arguments = {{GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, 256 << 10}};
  if (read_ahead == ReadAhead::kBounded) {
    // Without the probe, gRPC 1.51 keeps a connection's window at 64 KiB beyond the message being
    // read.
    arguments[GRPC_ARG_HTTP2_BDP_PROBE] = 0;
    // A message begins with less than half of the window. The beginning of a message uses up more,
    // and gRPC announces the room of the connection first and that of the stream in a separate
    // frame, for which the sender waits longer.
    arguments[GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES] = 31 << 10;
  }
  return arguments;
}

}  // namespace annulus

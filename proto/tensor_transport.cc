#include "proto/tensor_transport.h"

#include "grpc/grpc.h"

namespace annulus {

std::map<std::string, int> TensorTransport(ReadAhead read_ahead) {
  // Without the probe gRPC 1.51 keeps a connection's window at 64 KiB beyond what is being read.
  return {{GRPC_ARG_HTTP2_BDP_PROBE, read_ahead == ReadAhead::kAdaptive ? 1 : 0},
          {GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, 256 << 10}};
}

}  // namespace annulus

#include "proto/tensor_transport.h"

#include "grpc/grpc.h"

namespace annulus {

std::map<std::string, int> TensorTransport() {
  return {{GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, 256 << 10}};
}

}  // namespace annulus

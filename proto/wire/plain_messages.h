#ifndef ANNULUS_PROTO_WIRE_PLAIN_MESSAGES_H_
#define ANNULUS_PROTO_WIRE_PLAIN_MESSAGES_H_

#include "grpcpp/server_builder.h"

namespace annulus {

// Lets a server refuse compressed messages (UNIMPLEMENTED). A small compressed message would be
// inflated to any size before its bytes are counted. Tensors do not compress well.
inline void TakeNothingCompressed(grpc::ServerBuilder* builder) {
  for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP})
    builder->SetCompressionAlgorithmSupportStatus(algorithm, false);
}

}  // namespace annulus

#endif  // ANNULUS_PROTO_WIRE_PLAIN_MESSAGES_H_

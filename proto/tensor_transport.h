#ifndef ANNULUS_PROTO_TENSOR_TRANSPORT_H_
#define ANNULUS_PROTO_TENSOR_TRANSPORT_H_

#include <map>
#include <string>

namespace annulus {

// Channel arguments of every connection that carries tensors, for both of its ends. They bound what
// gRPC itself holds of a stream, beside the credits of this service (left alone, its windows grow
// with the bandwidth, and a chunk that is kept can pin a read buffer four times as large), and let
// a chunk of 1 MiB leave without waiting for a window.
std::map<std::string, int> TensorTransport();

}  // namespace annulus

#endif  // ANNULUS_PROTO_TENSOR_TRANSPORT_H_

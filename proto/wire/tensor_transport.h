#ifndef ANNULUS_PROTO_WIRE_TENSOR_TRANSPORT_H_
#define ANNULUS_PROTO_WIRE_TENSOR_TRANSPORT_H_

#include <map>
#include <string>

namespace annulus {

// How much gRPC may buffer of the streams that this end of a connection reads.
enum class ReadAhead : char {
  kAdaptive,  // The amount that the bandwidth of the link needs.
  kBounded,   // The message being read; for programs that only pass bytes on.
};

// Channel arguments of a connection that carries tensors. In both modes a chunk that is kept does
// not pin a read buffer many times its size.
std::map<std::string, int> TensorTransport(ReadAhead read_ahead);

}  // namespace annulus

#endif  // ANNULUS_PROTO_WIRE_TENSOR_TRANSPORT_H_

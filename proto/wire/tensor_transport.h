#ifndef ANNULUS_PROTO_WIRE_TENSOR_TRANSPORT_H_
#define ANNULUS_PROTO_WIRE_TENSOR_TRANSPORT_H_

#include <map>
#include <string>

namespace annulus {

// What gRPC itself may hold of the streams that this end of a connection reads.
enum class ReadAhead : char {
  kAdaptive,  // As much as the link's bandwidth asks for.
  kBounded,   // The message that is being read: for who only passes bytes on.
};

// Channel arguments of a connection that carries tensors. In both cases a chunk that is kept pins
// no read buffer many times as large.
std::map<std::string, int> TensorTransport(ReadAhead read_ahead);

}  // namespace annulus

#endif  // ANNULUS_PROTO_WIRE_TENSOR_TRANSPORT_H_

#ifndef ANNULUS_SERVER_GATEWAY_TRANSPORT_LIMITS_H_
#define ANNULUS_SERVER_GATEWAY_TRANSPORT_LIMITS_H_

#include <map>
#include <string>

namespace annulus {

// Channel arguments that bound what gRPC itself holds of a stream, beside the gateway's credits:
// for the port that serves Attend and for the channels to the workers. Left alone its windows grow
// with the bandwidth, and a chunk that is kept can pin a read buffer four times as large.
std::map<std::string, int> TransportLimits();

}  // namespace annulus

#endif  // ANNULUS_SERVER_GATEWAY_TRANSPORT_LIMITS_H_

#ifndef ANNULUS_TESTS_WORKER_COMM_PLACE_H_
#define ANNULUS_TESTS_WORKER_COMM_PLACE_H_

#include <netinet/in.h>

#include <cstring>
#include <string>

namespace annulus {

// The address at which a rank waits for a peer, from its GlooBootstrap. IPv4.
inline sockaddr_in PlaceOf(const std::string& address) {
  sockaddr_in place;
  std::memcpy(&place, address.data(), sizeof(place));
  return place;
}

// The same bootstrap address with another socket address.
inline std::string WithPlace(std::string address, const sockaddr_in& place) {
  std::memcpy(address.data(), &place, sizeof(place));
  return address;
}

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_COMM_PLACE_H_

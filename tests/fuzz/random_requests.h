#ifndef ANNULUS_TESTS_FUZZ_RANDOM_REQUESTS_H_
#define ANNULUS_TESTS_FUZZ_RANDOM_REQUESTS_H_

#include <random>

#include "annulus/v1/types.pb.h"

namespace annulus {

// Requests of every kind: all options in any combination, many invalid. The same generator state
// gives the same request.
struct RandomRequest {
  v1::AttentionSpec spec;
  v1::Execution execution;
};

// Small enough for the reference. Intended to be valid, but options may conflict.
RandomRequest MakeRequest(std::mt19937_64* random);

// Damages some fields anywhere in a message: changed numbers and enum values, longer or shorter
// lists, parts added or removed, unknown fields.
void Damage(std::mt19937_64* random, google::protobuf::Message* message);

}  // namespace annulus

#endif  // ANNULUS_TESTS_FUZZ_RANDOM_REQUESTS_H_

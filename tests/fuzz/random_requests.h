#ifndef ANNULUS_TESTS_FUZZ_RANDOM_REQUESTS_H_
#define ANNULUS_TESTS_FUZZ_RANDOM_REQUESTS_H_

#include <random>

#include "annulus/v1/types.pb.h"

namespace annulus {

// Requests of every kind: all options in any combination, many of them wrong. Same generator state,
// same request.
struct RandomRequest {
  v1::AttentionSpec spec;
  v1::Execution execution;
};

// Small enough to be judged by the reference; meant to be valid, though options may not go
// together.
RandomRequest MakeRequest(std::mt19937_64* random);

// Damages some fields anywhere in a message: other numbers and enum values, lists that grow or go,
// parts that appear or vanish, fields that nobody knows.
void Damage(std::mt19937_64* random, google::protobuf::Message* message);

}  // namespace annulus

#endif  // ANNULUS_TESTS_FUZZ_RANDOM_REQUESTS_H_

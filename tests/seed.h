#ifndef ANNULUS_TESTS_SEED_H_
#define ANNULUS_TESTS_SEED_H_

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>

namespace annulus {

// A new seed for each run, or ANNULUS_TEST_SEED. Prints the setting that repeats the run.
inline uint32_t TestSeed() {
  const char* given = std::getenv("ANNULUS_TEST_SEED");
  const uint32_t seed = given == nullptr ? std::random_device{}()
                                         : static_cast<uint32_t>(std::strtoul(given, nullptr, 10));
  std::cout << "ANNULUS_TEST_SEED=" << seed << std::endl;
  return seed;
}

// For SCOPED_TRACE: adds the seed to a failure message.
inline std::string SeedTrace(uint32_t seed) { return "ANNULUS_TEST_SEED=" + std::to_string(seed); }

}  // namespace annulus

#endif  // ANNULUS_TESTS_SEED_H_

#ifndef ANNULUS_TESTS_WORKER_COMM_COMMUNICATOR_CONFORMANCE_H_
#define ANNULUS_TESTS_WORKER_COMM_COMMUNICATOR_CONFORMANCE_H_

#include <cstdint>
#include <ostream>
#include <string>

#include "gtest/gtest.h"
#include "tests/worker/comm/group.h"

namespace annulus {

// The conformance suite of Communicator (worker/comm/communicator.h). An implementation runs it by
// INSTANTIATE_TEST_SUITE_P(Name, CommunicatorConformance, …) and links the tests.
struct ConformanceCase {
  std::string name;
  GroupFactory make;
  int32_t ranks = 2;
  // Set if `make` has long timeouts: ranks that soon give up on a missing rank.
  GroupFactory give_up_soon = nullptr;
};

inline void PrintTo(const ConformanceCase& c, std::ostream* out) { *out << c.name; }

class CommunicatorConformance : public testing::TestWithParam<ConformanceCase> {
 protected:
  int32_t ranks() const { return GetParam().ranks; }
  Group Connected() const { return ConnectedGroup(GetParam().make, ranks()); }
  Group GiveUpSoon() const {
    const ConformanceCase& given = GetParam();
    return (given.give_up_soon == nullptr ? given.make : given.give_up_soon)(ranks());
  }
};

// The cases of one implementation: 2, 3, 4, 7 and 8 ranks.
inline auto ConformanceCases(const GroupFactory& make, const GroupFactory& give_up_soon = nullptr) {
  return testing::Values(
      ConformanceCase{"2", make, 2, give_up_soon}, ConformanceCase{"3", make, 3, give_up_soon},
      ConformanceCase{"4", make, 4, give_up_soon}, ConformanceCase{"7", make, 7, give_up_soon},
      ConformanceCase{"8", make, 8, give_up_soon});
}

inline std::string ConformanceName(const testing::TestParamInfo<ConformanceCase>& info) {
  return info.param.name + "Ranks";
}

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_COMM_COMMUNICATOR_CONFORMANCE_H_

#ifndef ANNULUS_TESTS_ATTENTION_SCHEDULE_SCHEDULE_MUTANTS_H_
#define ANNULUS_TESTS_ATTENTION_SCHEDULE_SCHEDULE_MUTANTS_H_

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/attention/schedule/schedule_cases.h"

namespace annulus {

// A group's schedules with their memory, to be damaged.
struct Mutant {
  const BuiltCase* built = nullptr;
  std::vector<RankSchedule> ranks;
  std::vector<ArenaPlan> placements;
};

// One kind of damage.
struct Damage {
  std::string name;
  // Damages a place drawn by the generator. False if the schedule has no such place.
  std::function<bool(Mutant&, std::mt19937_64&)> apply;
  // True if memory is planned again afterwards, so that only the schedule is wrong.
  bool place_again = true;
};

// All kinds that the tests have.
std::vector<Damage> AllDamages();

}  // namespace annulus

#endif  // ANNULUS_TESTS_ATTENTION_SCHEDULE_SCHEDULE_MUTANTS_H_

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
  // Damages at a place drawn by the generator; false where the schedule has no such place.
  std::function<bool(Mutant&, std::mt19937_64&)> apply;
  // Whether memory is placed anew afterwards, so that only the schedule itself is at fault.
  bool place_again = true;
};

// Every kind that the tests know.
std::vector<Damage> AllDamages();

}  // namespace annulus

#endif  // ANNULUS_TESTS_ATTENTION_SCHEDULE_SCHEDULE_MUTANTS_H_

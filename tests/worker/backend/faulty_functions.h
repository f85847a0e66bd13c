#ifndef ANNULUS_TESTS_WORKER_BACKEND_FAULTY_FUNCTIONS_H_
#define ANNULUS_TESTS_WORKER_BACKEND_FAULTY_FUNCTIONS_H_

#include <vector>

#include "worker/kernel/cpu/isa/gradient_isa.h"
#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {

// A fault in one function of the portable path's tables: it does nothing, or one number is wrong by
// an amount that shows in every type.
struct FaultyFunction {
  const char* name;
  void (*set)(TileIsa*, GradientIsa*);
};

// Faults for every function of these tables.
std::vector<FaultyFunction> FaultyFunctions();

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_BACKEND_FAULTY_FUNCTIONS_H_

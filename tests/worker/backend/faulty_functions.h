#ifndef ANNULUS_TESTS_WORKER_BACKEND_FAULTY_FUNCTIONS_H_
#define ANNULUS_TESTS_WORKER_BACKEND_FAULTY_FUNCTIONS_H_

#include <vector>

#include "worker/kernel/cpu/isa/gradient_isa.h"
#include "worker/kernel/cpu/isa/tile_isa.h"

namespace annulus {

// One function of the portable path's tables with a fault: it leaves its work undone, or one number
// is wrong, by so much that it shows in every type.
struct FaultyFunction {
  const char* name;
  void (*set)(TileIsa*, GradientIsa*);
};

// Of every function that these tables have.
std::vector<FaultyFunction> FaultyFunctions();

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_BACKEND_FAULTY_FUNCTIONS_H_

#ifndef ANNULUS_CLIENT_CLI_VERIFY_ALL_THREADS_H_
#define ANNULUS_CLIENT_CLI_VERIFY_ALL_THREADS_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace annulus {

// Calls work(0) … work(count − 1), once each and in any order, on as many threads as this thread
// has CPUs. Returns when all calls have ended. `work` must be thread-safe.
void ForEachOnAllThreads(int64_t count, absl::FunctionRef<void(int64_t)> work);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_VERIFY_ALL_THREADS_H_

#ifndef ANNULUS_TESTS_ATTENTION_CHECKER_BROKEN_H_
#define ANNULUS_TESTS_ATTENTION_CHECKER_BROKEN_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace annulus {

// FAILED_PRECONDITION / SCHEDULE_BROKEN with rank, step (−1: no particular one) and the broken
// rule.
absl::Status Broken(int32_t rank, int32_t step, absl::string_view rule);

}  // namespace annulus

#endif  // ANNULUS_TESTS_ATTENTION_CHECKER_BROKEN_H_

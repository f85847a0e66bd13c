#ifndef ANNULUS_BASE_SUGGEST_NAME_H_
#define ANNULUS_BASE_SUGGEST_NAME_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus {

// The name that somebody meant who wrote `word`: the one that takes the fewest letters added, left
// out, replaced or swapped with the next, case aside; empty where that is more than a third of the
// word's. The first of equals.
std::string SuggestName(absl::string_view word, const std::vector<std::string>& names);

}  // namespace annulus

#endif  // ANNULUS_BASE_SUGGEST_NAME_H_

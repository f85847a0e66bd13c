#ifndef ANNULUS_BASE_SUGGEST_NAME_H_
#define ANNULUS_BASE_SUGGEST_NAME_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus {

// The name that `word` was probably meant to be: the one that needs the fewest letters added,
// removed, replaced or swapped with the next, ignoring case. The first of equals. Empty if it needs
// more changes than a third of the word's letters.
std::string SuggestName(absl::string_view word, const std::vector<std::string>& names);

}  // namespace annulus

#endif  // ANNULUS_BASE_SUGGEST_NAME_H_

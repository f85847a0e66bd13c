#ifndef ANNULUS_BASE_ESCAPE_FOR_TERMINAL_H_
#define ANNULUS_BASE_ESCAPE_FOR_TERMINAL_H_

#include <string>

#include "absl/strings/string_view.h"

namespace annulus {

// The text as one line that a terminal shows as it is, whoever wrote it: lines are joined by
// spaces, a tab is one, and control characters, what turns the direction of writing and bytes that
// are no UTF-8 are written as "\x1b".
std::string EscapeForTerminal(absl::string_view text);

}  // namespace annulus

#endif  // ANNULUS_BASE_ESCAPE_FOR_TERMINAL_H_

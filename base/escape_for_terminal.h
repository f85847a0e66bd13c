#ifndef ANNULUS_BASE_ESCAPE_FOR_TERMINAL_H_
#define ANNULUS_BASE_ESCAPE_FOR_TERMINAL_H_

#include <string>

#include "absl/strings/string_view.h"

namespace annulus {

// Makes text of any origin safe to show on a terminal, as one line. Lines are joined by spaces, and
// a tab becomes a space. Control characters, characters that change the direction of writing, and
// bytes that are not UTF-8 are written as "\x1b".
std::string EscapeForTerminal(absl::string_view text);

}  // namespace annulus

#endif  // ANNULUS_BASE_ESCAPE_FOR_TERMINAL_H_

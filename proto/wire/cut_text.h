#ifndef ANNULUS_PROTO_WIRE_CUT_TEXT_H_
#define ANNULUS_PROTO_WIRE_CUT_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace annulus {

// The first bytes of a UTF-8 text, at most `limit`, cut between two characters. A message with half
// a character does not parse.
std::string CutText(absl::string_view text, size_t limit);

}  // namespace annulus

#endif  // ANNULUS_PROTO_WIRE_CUT_TEXT_H_

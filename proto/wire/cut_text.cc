#include "proto/wire/cut_text.h"

namespace annulus {

std::string CutText(absl::string_view text, size_t limit) {
  if (text.size() <= limit) return std::string(text);
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xC0) == 0x80) --limit;
  return std::string(text.substr(0, limit));
}

}  // namespace annulus

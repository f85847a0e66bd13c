#include "base/escape_for_terminal.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace annulus {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: not UTF-8.
};

Character First(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return {};
  uint32_t code = first & (0x7f >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  if (code < kLeast[bytes] || code > 0x10ffff || surrogate) return {};
  return {code, bytes};
}

bool IsShown(uint32_t code) {
  if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;
  return !(code >= 0x2028 && code <= 0x202e) && !(code >= 0x2066 && code <= 0x2069);
}

void AppendShown(absl::string_view line, std::string* shown) {
  while (!line.empty()) {
    const Character character = First(line);
    const size_t bytes = character.bytes == 0 ? 1 : character.bytes;
    if (line[0] == '\t') {
      shown->push_back(' ');
    } else if (character.bytes > 0 && IsShown(character.code)) {
      shown->append(line.data(), bytes);
    } else {
      for (size_t i = 0; i < bytes; ++i) {
        absl::StrAppendFormat(shown, "\\x%02x", static_cast<uint8_t>(line[i]));
      }
    }
    line.remove_prefix(bytes);
  }
}

}  // namespace

std::string EscapeForTerminal(absl::string_view text) {
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n', absl::SkipWhitespace());
  for (absl::string_view& line : lines) line = absl::StripTrailingAsciiWhitespace(line);
  std::string shown;
  AppendShown(absl::StrJoin(lines, " "), &shown);
  return shown;
}

}  // namespace annulus

#include "base/suggest_name.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"

namespace annulus {
namespace {

// Longer words are not considered.
constexpr size_t kMaxLetters = 64;

// Optimal string alignment distance, computed row by row.
size_t Changes(absl::string_view a, absl::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::string SuggestName(absl::string_view word, const std::vector<std::string>& names) {
  const std::string written = absl::AsciiStrToLower(word.substr(0, kMaxLetters + 1));
  if (written.size() > kMaxLetters) return "";
  std::string nearest;
  size_t fewest = written.size() / 3 + 1;
  for (const std::string& name : names) {
    if (name.size() > kMaxLetters) continue;
    const size_t changes = Changes(written, absl::AsciiStrToLower(name));
    if (changes >= fewest) continue;
    fewest = changes;
    nearest = name;
  }
  return nearest;
}

}  // namespace annulus

#include "client/cli/files/merge_copies.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>

#include "absl/strings/string_view.h"

namespace annulus {
namespace {

bool IsSame(const SafetensorsFile& a, const SafetensorsFile& b, absl::string_view name) {
  const SafetensorInfo *of_a = a.Find(name), *of_b = b.Find(name);
  if (of_a == nullptr || of_b == nullptr) return of_a == of_b;
  const absl::Span<const std::byte> in_a = a.Bytes(*of_a), in_b = b.Bytes(*of_b);
  return of_a->dtype == of_b->dtype && of_a->shape == of_b->shape && in_a.size() == in_b.size() &&
         (in_a.empty() || std::memcmp(in_a.data(), in_b.data(), in_a.size()) == 0);
}

// The smallest tensor first, because most files differ in it.
bool IsCopy(const SafetensorsFile& a, const SafetensorsFile& b) {
  return IsSame(a, b, "lse") && IsSame(a, b, "lse_rest") && IsSame(a, b, "output");
}

bool HasSeenAnything(const SafetensorsFile& file) {
  const SafetensorInfo* const lse = file.Find("lse");
  if (lse == nullptr || lse->dtype != "F32") return false;
  const absl::Span<const std::byte> bytes = file.Bytes(*lse);
  for (size_t i = 0; i + sizeof(float) <= bytes.size(); i += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, &bytes[i], sizeof(value));
    if (value != -std::numeric_limits<float>::infinity()) return true;
  }
  return false;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> CopiedPartials(
    const std::vector<SafetensorsFile>& files) {
  std::vector<std::pair<std::string, std::string>> copied;
  for (auto file = files.begin(); file != files.end(); ++file) {
    const auto first = std::find_if(
        files.begin(), file, [&](const SafetensorsFile& other) { return IsCopy(*file, other); });
    if (first != file && HasSeenAnything(*file)) copied.emplace_back(file->path(), first->path());
  }
  return copied;
}

}  // namespace annulus

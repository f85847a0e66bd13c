#include "server/coordinator/state/group_family.h"

#include <algorithm>
#include <cstddef>

namespace annulus {
namespace {

using Family = std::vector<std::vector<int64_t>>;

void AddFamilyOf(const std::vector<int64_t>& block, Family* family) {
  if (block.size() < 2) return;
  family->push_back(block);
  size_t size = 2;
  while (size * 2 < block.size()) size *= 2;
  for (; size >= 2; size /= 2) {
    if (size == block.size()) continue;
    for (size_t begin = 0; begin + size <= block.size(); begin += size) {
      family->emplace_back(block.begin() + begin, block.begin() + begin + size);
    }
  }
}

}  // namespace

Family GroupFamily(const std::vector<int64_t>& order, int32_t max_size) {
  Family family;
  const auto most = static_cast<size_t>(max_size);
  for (size_t begin = 0; begin < order.size(); begin += most) {
    const size_t end = std::min(order.size(), begin + most);
    AddFamilyOf({order.begin() + begin, order.begin() + end}, &family);
  }
  std::stable_sort(family.begin(), family.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return family;
}

}  // namespace annulus

#include "server/coordinator/group_family.h"

#include <cstddef>

namespace annulus {

std::vector<std::vector<int64_t>> GroupFamily(const std::vector<int64_t>& order) {
  std::vector<std::vector<int64_t>> family;
  if (order.size() < 2) return family;
  family.push_back(order);
  size_t size = 2;
  while (size * 2 < order.size()) size *= 2;
  for (; size >= 2; size /= 2) {
    if (size == order.size()) continue;
    for (size_t begin = 0; begin + size <= order.size(); begin += size) {
      family.emplace_back(order.begin() + begin, order.begin() + begin + size);
    }
  }
  return family;
}

}  // namespace annulus

#include "server/coordinator/state/group_table.h"

#include <algorithm>
#include <cstddef>
#include <utility>

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

int32_t GroupRecord::RankOf(int64_t worker) const {
  for (size_t rank = 0; rank < members.size(); ++rank) {
    if (members[rank] == worker) return static_cast<int32_t>(rank);
  }
  return -1;
}

const char* GroupStateName(GroupRecord::State state) {
  switch (state) {
    case GroupRecord::State::kOpening:
      return "opening";
    case GroupRecord::State::kConnecting:
      return "connecting";
    case GroupRecord::State::kReady:
      return "ready";
    case GroupRecord::State::kClosing:
      return "closing";
    case GroupRecord::State::kAborting:
      return "aborting";
  }
  return "unknown";
}

GroupRecord& GroupTable::Add(std::vector<int64_t> members) {
  const int64_t number = ++last_number_;
  GroupRecord& group = groups_[number];
  group.number = number;
  group.bootstraps.resize(members.size());
  group.members = std::move(members);
  return group;
}

GroupRecord* GroupTable::Find(int64_t number) {
  auto it = groups_.find(number);
  return it == groups_.end() ? nullptr : &it->second;
}

absl::Status GroupTable::FormationError(const std::vector<int64_t>& members) const {
  auto it = pauses_.find(members);
  return it == pauses_.end() ? absl::OkStatus() : it->second.formation;
}

const GroupRecord* GroupTable::Find(int64_t number) const {
  auto it = groups_.find(number);
  return it == groups_.end() ? nullptr : &it->second;
}

}  // namespace annulus

#include "server/coordinator/state/group_table.h"

#include <utility>

namespace annulus {

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

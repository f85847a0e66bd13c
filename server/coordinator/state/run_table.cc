#include "server/coordinator/state/run_table.h"

#include <algorithm>

namespace annulus {

int32_t RunRecord::RankOf(int64_t worker) const {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].worker == worker && !ranks[rank].gone) return static_cast<int32_t>(rank);
  }
  return -1;
}

int32_t RunRecord::SegmentsDone() const {
  int32_t done = issued;
  for (const RunRank& rank : ranks) {
    if (!rank.gone) done = std::min(done, rank.segments_done);
  }
  return done;
}

control::v1::ShardKey RunRecord::Key(int32_t rank) const {
  control::v1::ShardKey key;
  key.set_job_id(job_id);
  key.set_attempt(attempt);
  key.set_rank(rank);
  return key;
}

const char* RunStateName(RunRecord::State state) {
  static constexpr const char* kNames[] = {"uploading", "ready", "preparing", "prepared", "running",
                                           "draining",  "kept",  "halting",   "dropping"};
  return kNames[static_cast<int>(state)];
}

RunRecord& RunTable::Add(const std::string& job_id, int32_t attempt) {
  const int64_t number = ++last_number_;
  RunRecord& run = runs_[number];
  run.number = number;
  run.job_id = job_id;
  run.attempt = attempt;
  by_shard_[{job_id, attempt}] = number;
  return run;
}

void RunTable::Erase(int64_t number) {
  auto it = runs_.find(number);
  if (it == runs_.end()) return;
  by_shard_.erase({it->second.job_id, it->second.attempt});
  runs_.erase(it);
}

RunRecord* RunTable::Find(int64_t number) {
  auto it = runs_.find(number);
  return it == runs_.end() ? nullptr : &it->second;
}

const RunRecord* RunTable::Find(int64_t number) const {
  auto it = runs_.find(number);
  return it == runs_.end() ? nullptr : &it->second;
}

RunRecord* RunTable::Find(const control::v1::ShardKey& shard) {
  auto it = by_shard_.find({shard.job_id(), shard.attempt()});
  return it == by_shard_.end() ? nullptr : Find(it->second);
}

}  // namespace annulus

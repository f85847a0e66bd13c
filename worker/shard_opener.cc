#include "worker/shard_opener.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/sharding/shard_plan.h"
#include "attention/spec/tensor_table.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "proto/wire/convert.h"
#include "worker/agent/agent_values.h"
#include "worker/executor/program_memo.h"

namespace annulus {

AsyncShardOpener::~AsyncShardOpener() {
  MutexLock lock(&mutex_);
  stopping_ = true;
}

void AsyncShardOpener::Begin(const ShardId& id, std::function<void()> open,
                             std::function<void(const absl::Status& why)> close) {
  {
    MutexLock lock(&mutex_);
    opening_.emplace(id, std::nullopt);
  }
  // The queue needs no limit: the coordinator limits the number of shards.
  queue_.PostAlways([this, id, open = std::move(open), close = std::move(close)] {
    if (Stopping()) return;
    if (!ToClose(id)) open();
    if (const std::optional<absl::Status> why = End(id)) close(*why);
  });
}

bool AsyncShardOpener::Close(const ShardId& id, const absl::Status& why) {
  MutexLock lock(&mutex_);
  const auto opening = opening_.find(id);
  if (opening == opening_.end()) return false;
  if (!opening->second) opening->second = why;
  return true;
}

std::optional<absl::Status> AsyncShardOpener::ToClose(const ShardId& id) {
  MutexLock lock(&mutex_);
  return opening_.at(id);
}

std::optional<absl::Status> AsyncShardOpener::End(const ShardId& id) {
  MutexLock lock(&mutex_);
  const auto opening = opening_.find(id);
  std::optional<absl::Status> why = std::move(opening->second);
  opening_.erase(opening);
  return why;
}

bool AsyncShardOpener::Stopping() {
  MutexLock lock(&mutex_);
  return stopping_;
}

bool LaysOutLong(const control::v1::Reserve& reserve) {
  const v1::Execution& execution = reserve.execution();
  return execution.layout() == v1::Execution::LAYOUT_BY_AREA && execution.world_size() > 1;
}

absl::StatusOr<ShardWork> OpenReserve(const control::v1::Reserve& reserve, ShardResources means) {
  const ShardWork* const lender = means.lender;
  ShardWork work;
  work.id = IdOf(reserve.shard());
  work.principal = reserve.principal();
  if (lender != nullptr && lender->principal != work.principal) {
    return MakeError(absl::StatusCode::kInternal, "the kept shard belongs to another principal",
                     {"INVALID_PLAN", {}, {}, {}});
  }
  ASSIGN_OR_RETURN(work.request.spec, SpecFromProto(reserve.spec(), "reserve.spec"));
  ASSIGN_OR_RETURN(work.request.execution,
                   ExecutionFromProto(reserve.execution(), "reserve.execution"));
  RETURN_IF_ERROR(CheckNotLacking(means.lacks, work.request.spec, work.request.execution));
  work.request.plan_options = PlanOptionsOf(work.request.execution, reserve.granule());
  work.request.parts_of_step.assign(reserve.parts_of_step().begin(), reserve.parts_of_step().end());
  work.request.rank = work.id.rank;
  // The key of the program memo: spec and execution, with the length of the first. Empty for large
  // specs, which the memo does not store.
  if (reserve.spec().ByteSizeLong() <= ProgramMemo::kMaxKeyBytes) {
    const std::string spec = reserve.spec().SerializeAsString();
    work.request.source =
        absl::StrCat(spec.size(), " ", spec, reserve.execution().SerializeAsString());
  }
  if (work.request.plan_options.granule % GranuleOf(work.request.spec) != 0) {
    return MakeError(absl::StatusCode::kInternal,
                     absl::StrCat("a granule of ", work.request.plan_options.granule,
                                  " rows cuts tiles of a deterministic job"),
                     {"INVALID_PLAN", {}, {}, {}});
  }
  PlanOptions layout = work.request.plan_options;
  // With one rank every layout gives it all rows.
  if (layout.world_size == 1) layout.layout = Layout::kContiguous;
  ASSIGN_OR_RETURN(const ShardPlan plan, MakeShardPlan(work.request.spec, layout));
  // Ranks beyond the plan's are surplus members of a larger group. They have no rows.
  ShardShape shape;
  shape.tensors = TensorTable(work.request.spec);
  for (const Shard& shard : plan.shards) {
    if (shard.owner != work.id.rank) continue;
    shape.q_rows += shard.q_rows.rows();
    shape.kv_rows += shard.kv_rows.rows();
  }
  // The coordinator has counted these bytes against this worker's budget.
  const int64_t bytes = shape.own_bytes();
  if (bytes != reserve.staging_bytes()) {
    return MakeError(absl::StatusCode::kInternal,
                     absl::StrCat("by the worker's plan rank ", work.id.rank, " needs ", bytes,
                                  " bytes, but the coordinator reserves ", reserve.staging_bytes()),
                     {"INVALID_PLAN", {}, {}, {}});
  }
  ASSIGN_OR_RETURN(work.staged,
                   StagedShard::Create(means.pool, std::move(shape), std::move(means.on_freed),
                                       lender == nullptr ? nullptr : lender->staged));
  return work;
}

}  // namespace annulus

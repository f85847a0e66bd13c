#ifndef ANNULUS_WORKER_LANE_SHARD_RUN_H_
#define ANNULUS_WORKER_LANE_SHARD_RUN_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "annulus/control/v1/control.pb.h"
#include "worker/agent/agent_values.h"
#include "worker/executor/executor.h"
#include "worker/executor/program.h"
#include "worker/executor/program_memo.h"
#include "worker/staging/memory_budget.h"
#include "worker/staging/shard_id.h"
#include "worker/staging/staged_shard.h"

namespace annulus {

// The input of a run: a shard and its program request.
struct ShardWork {
  ShardId id;
  ProgramRequest request;
  std::shared_ptr<StagedShard> staged;
  std::string principal;
};

// A shard with its program and device memory. Members are destroyed in reverse order: the executor,
// the device memory, the staged tensors.
struct ShardRun {
  ShardId id;
  std::shared_ptr<StagedShard> staged;
  std::shared_ptr<const RankProgram> program;
  Reservation reservation;  // From the device budget.
  DeviceMemory memory;
  std::unique_ptr<Executor> executor;  // Created at the first segment, by the thread that runs it.
  GroupId group;                       // The group whose communicator the executor uses.
  int32_t next_step = 0;
  bool failed = false;            // True once the failure has been reported to the coordinator.
  std::atomic<bool> stop{false};  // Any thread.

  StagedTensors Tensors() const;
  // Frees the executor and the device memory.
  void ReleaseDevice();
};

// Gets the program from `memo` or builds it, and reserves device memory from `budget`.
// RESOURCE_EXHAUSTED; errors of MakeProgram.
absl::StatusOr<std::shared_ptr<ShardRun>> PrepareRun(const ShardWork& work, MemoryBudget* budget,
                                                     Device* device, const AttentionKernel& kernel,
                                                     ProgramMemo* memo);

// RESOURCE_EXHAUSTED / QUEUE_FULL: too many `what` are waiting.
absl::Status LaneFullError(absl::string_view what);

// Events that lanes report.
control::v1::WorkerEvent PreparedEvent(const ShardRun& run);
control::v1::WorkerEvent OutputReadyEvent(const ShardId& id, const ExecutionStats& stats,
                                          const std::string& backend);

}  // namespace annulus

#endif  // ANNULUS_WORKER_LANE_SHARD_RUN_H_

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

// What a lane needs to know of a shard to run it.
struct ShardWork {
  ShardId id;
  ProgramRequest request;
  std::shared_ptr<StagedShard> staged;
  std::string principal;
};

// A shard with its program and device memory. Members die in reverse order: the executor, the
// device's bytes, the staged tensors.
struct ShardRun {
  ShardId id;
  std::shared_ptr<StagedShard> staged;
  std::shared_ptr<const RankProgram> program;
  Reservation reservation;  // Of the device budget.
  DeviceMemory memory;
  std::unique_ptr<Executor> executor;  // Made at the first segment, by the thread that runs it.
  GroupId group;                       // Whose communicator the executor uses.
  int32_t next_step = 0;
  bool failed = false;            // Told to the coordinator.
  std::atomic<bool> stop{false};  // Any thread.

  StagedTensors Tensors() const;
  // Frees the device's share.
  void ReleaseDevice();
};

// Builds the program for these, or finds it in `memo`, and takes device memory from `budget`.
// RESOURCE_EXHAUSTED, and the errors of MakeProgram.
absl::StatusOr<std::shared_ptr<ShardRun>> PrepareRun(const ShardWork& work, MemoryBudget* budget,
                                                     Device* device, const AttentionKernel& kernel,
                                                     ProgramMemo* memo);

// RESOURCE_EXHAUSTED / QUEUE_FULL: too many `what` wait for this worker.
absl::Status LaneFullError(absl::string_view what);

// The events that lanes report.
control::v1::WorkerEvent PreparedEvent(const ShardRun& run);
control::v1::WorkerEvent OutputReadyEvent(const ShardId& id, const ExecutionStats& stats,
                                          const std::string& backend);

}  // namespace annulus

#endif  // ANNULUS_WORKER_LANE_SHARD_RUN_H_

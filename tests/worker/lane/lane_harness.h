#ifndef ANNULUS_TESTS_WORKER_LANE_LANE_HARNESS_H_
#define ANNULUS_TESTS_WORKER_LANE_LANE_HARNESS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "attention/planning/kernel_rates.h"
#include "attention/spec/spec.h"
#include "attention/spec/tensor_table.h"
#include "tests/base/gate.h"
#include "tests/worker/agent/event_log.h"
#include "tests/worker/comm/in_process.h"
#include "tests/worker/data_plane/copy_probe.h"
#include "tests/worker/executor/probe_kernel.h"
#include "worker/lane/lane.h"
#include "worker/lane/solo_lane.h"

namespace annulus {

// One worker's lanes, its memory and their reports. Ranks of a group connect through `hub`; the
// test replaces it before it opens the next group.
class LaneHost {
 public:
  using Hub = std::shared_ptr<InProcessHub>;

  struct Options {
    // Before each call of the kernel, and before each piece of a copy.
    std::function<absl::Status()> before_call = [] { return absl::OkStatus(); };
    std::function<void()> before_copy = [] {};
    // Before a communicator is made, and before device memory is allocated.
    std::function<void()> before_open = [] {};
    std::function<void()> before_allocate = [] {};
    std::function<absl::Status()> synchronize = [] { return absl::OkStatus(); };
    bool reads_staging = false;  // Result of Device::reads_staging.
    int64_t device_bytes = 1 << 20;
    size_t max_waiting = 4096;
    std::function<absl::Time()> now = absl::Now;
    absl::Duration step_timeout = absl::Seconds(30);
    // For the solo lane: rates, and True if it may run jobs on any thread.
    std::vector<KernelRates> rates;
    bool any_thread = true;
  };

  explicit LaneHost(const Hub* hub) : LaneHost(hub, Options()) {}
  LaneHost(const Hub* hub, const Options& options);

  Lane& lane() { return *lane_; }
  SoloLane& solo() { return *solo_; }
  void RunSolo(const ShardWork& work) {
    solo_->Add(work);
    solo_->Run(work.id);
  }
  void DestroyLane() { lane_.reset(); }
  void DestroySolo() { solo_.reset(); }
  const MemoryBudget& device() const { return *device_; }
  const MemoryBudget& staging() const { return *staging_; }

  // A shard of `spec` with the rows of `rank` of `ranks`, contiguous. Its numbers depend only on
  // the job's row.
  ShardWork Work(const AttentionSpec& spec, int32_t rank, int32_t ranks,
                 const std::string& job = "job");
  // The values of output `id`.
  static std::vector<float> Output(const StagedShard& shard, TensorId id);

  EventLog log;

 private:
  std::shared_ptr<MemoryBudget> staging_ = MemoryBudget::Create("staging", 32 << 20);
  std::shared_ptr<PagePool> pool_ = PagePool::Create(staging_);
  const std::shared_ptr<MemoryBudget> device_;
  std::unique_ptr<Lane> lane_;
  std::unique_ptr<SoloLane> solo_;
};

// Options with which each call of the kernel passes the gate.
LaneHost::Options HeldUpBy(Gate* gate);

// 2 query heads, 1 key/value head, 4 dimensions, fp32, one causal sequence.
AttentionSpec LaneSpec(int64_t rows);

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_LANE_LANE_HARNESS_H_

#ifndef ANNULUS_TESTS_WORKER_LANE_HARNESS_H_
#define ANNULUS_TESTS_WORKER_LANE_HARNESS_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "attention/spec.h"
#include "attention/tensor_table.h"
#include "tests/executor/probe_kernel.h"
#include "tests/worker/copy_probe.h"
#include "tests/worker/event_log.h"
#include "worker/comm/in_process.h"
#include "worker/lane/lane.h"
#include "worker/lane/solo_lane.h"

namespace annulus {

// One worker's lanes, its memory and what they report. Ranks of a group meet in `hub`, which the
// test changes before it opens the next group.
class LaneHost {
 public:
  using Hub = std::shared_ptr<InProcessHub>;

  // `before` runs before each call of the kernel, `before_copy` before each piece of a copy.
  explicit LaneHost(
      const Hub* hub, std::function<absl::Status()> before = [] { return absl::OkStatus(); },
      int64_t device_bytes = 1 << 20, size_t max_waiting = 4096,
      std::function<void()> before_copy = [] {}, absl::Duration step_timeout = absl::Seconds(30)) {
    device_ = MemoryBudget::Create("device", device_bytes);
    Lane::Options lane;
    lane.engine = MakeEngine(hub, std::move(before), std::move(before_copy));
    lane.device_budget = device_;
    lane.report = [this](EventLog::Event event) { log.Add(std::move(event)); };
    lane.now = absl::Now;
    lane.max_waiting = max_waiting;
    lane.step_timeout = step_timeout;
    SoloLane::Options solo;
    solo.engine = lane.engine;
    solo.device_budget = device_;
    solo.report = lane.report;
    solo.max_waiting = max_waiting;
    lane_ = *Lane::Create(std::move(lane));
    solo_ = *SoloLane::Create(std::move(solo));
  }

  Lane& lane() { return *lane_; }
  SoloLane& solo() { return *solo_; }
  void RunSolo(const ShardWork& work) {
    solo_->Add(work);
    solo_->Run(work.id);
  }
  void DestroyLane() { lane_.reset(); }
  const MemoryBudget& device() const { return *device_; }
  const MemoryBudget& staging() const { return *staging_; }

  // A shard of `spec` with the rows of `rank` of `ranks`, contiguous, filled with numbers that
  // depend on the job's row alone.
  ShardWork Work(const AttentionSpec& spec, int32_t rank, int32_t ranks,
                 const std::string& job = "job") {
    ShardWork work;
    work.id = {job, 1, rank};
    work.request.spec = spec;
    work.request.plan_options.world_size = ranks;
    work.request.plan_options.layout = Layout::kContiguous;
    work.request.execution.strategy = Strategy::kRingPassKv;
    work.request.execution.layout = Layout::kContiguous;
    work.request.execution.world_size = ranks;
    work.request.rank = rank;
    const ShardPlan plan = *MakeShardPlan(spec, work.request.plan_options);
    const Shard& shard = plan.shards[rank];
    ShardShape shape{TensorTable(spec), shard.q_rows.rows(), shard.kv_rows.rows()};
    work.staged = *StagedShard::Create(pool_.get(), shape, nullptr);
    for (size_t i = 0; i < shape.tensors.size(); ++i) {
      const TensorInfo& tensor = shape.tensors[i];
      if (tensor.direction != Direction::kInput) continue;
      const RowMap& rows = shard.rows(tensor.rows);
      auto* values = reinterpret_cast<float*>(work.staged->tensor_data(i));
      const int64_t width = tensor.row_bytes() / 4;
      for (int64_t k = 0; k < rows.rows() * width; ++k) {
        const uint64_t place = rows.Global(k / width) * width + k % width;
        values[k] =
            static_cast<float>((place * 2654435761u + static_cast<int>(tensor.id) * 97) % 257) /
                128.0f -
            1.0f;
      }
    }
    return work;
  }
  // The values of output `id`.
  static std::vector<float> Output(const StagedShard& shard, TensorId id) {
    for (size_t i = 0; i < shard.shape().tensors.size(); ++i) {
      const TensorInfo& tensor = shard.shape().tensors[i];
      if (tensor.id != id) continue;
      const auto* values = reinterpret_cast<const float*>(shard.tensor_data(i));
      return std::vector<float>(values,
                                values + shard.shape().rows(tensor) * tensor.row_bytes() / 4);
    }
    return {};
  }

  EventLog log;

 private:
  static Engine MakeEngine(const Hub* hub, std::function<absl::Status()> before,
                           std::function<void()> before_copy) {
    Engine engine;
    engine.make_device = [before_copy]() -> absl::StatusOr<std::unique_ptr<Device>> {
      return std::make_unique<CopyProbe>(before_copy);
    };
    engine.make_kernel = [before](Device*) -> absl::StatusOr<std::unique_ptr<AttentionKernel>> {
      return std::make_unique<ProbeKernel>(before);
    };
    engine.make_communicator = [hub](Device*, int32_t rank,
                                     int32_t) -> absl::StatusOr<std::unique_ptr<Communicator>> {
      return (*hub)->MakeCommunicator(rank);
    };
    return engine;
  }

  std::shared_ptr<MemoryBudget> staging_ = MemoryBudget::Create("staging", 1 << 20);
  std::shared_ptr<PagePool> pool_ = PagePool::Create(staging_);
  std::shared_ptr<MemoryBudget> device_;
  std::unique_ptr<Lane> lane_;
  std::unique_ptr<SoloLane> solo_;
};

// 2 query heads, 1 key/value head, 4 dimensions, fp32, one causal sequence.
inline AttentionSpec LaneSpec(int64_t rows) {
  AttentionSpec spec;
  spec.dtype = DataType::kFp32;
  spec.q_heads = 2;
  spec.kv_heads = 1;
  spec.head_dim = 4;
  spec.sequences.resize(1);
  spec.sequences[0].q_len = rows;
  spec.sequences[0].kv_len = rows;
  spec.masks.resize(1);
  spec.masks[0].causal = true;
  return spec;
}

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_LANE_HARNESS_H_

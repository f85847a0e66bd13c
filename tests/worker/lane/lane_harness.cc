#include "tests/worker/lane/lane_harness.h"

#include <utility>

#include "absl/time/clock.h"

namespace annulus {
namespace {

Engine MakeEngine(const LaneHost::Hub* hub, const LaneHost::Options& options) {
  Engine engine;
  engine.any_thread = options.any_thread;
  engine.make_device = [options]() -> absl::StatusOr<std::unique_ptr<Device>> {
    return std::make_unique<CopyProbe>(options.before_copy, options.reads_staging,
                                       options.synchronize, options.before_allocate);
  };
  engine.make_kernel =
      [before = options.before_call](Device*) -> absl::StatusOr<std::unique_ptr<AttentionKernel>> {
    return std::make_unique<ProbeKernel>(before);
  };
  engine.make_communicator = [hub, before = options.before_open](
                                 Device*, int32_t rank,
                                 int32_t) -> absl::StatusOr<std::unique_ptr<Communicator>> {
    before();
    return (*hub)->MakeCommunicator(rank);
  };
  return engine;
}

}  // namespace

LaneHost::LaneHost(const Hub* hub, const Options& options)
    : device_(MemoryBudget::Create("device", options.device_bytes)) {
  Lane::Options lane;
  lane.engine = MakeEngine(hub, options);
  lane.device_budget = device_;
  lane.report = [this](EventLog::Event event) { log.Add(std::move(event)); };
  lane.now = options.now;
  lane.max_waiting = options.max_waiting;
  lane.step_timeout = options.step_timeout;
  SoloLane::Options solo;
  solo.engine = lane.engine;
  solo.device_budget = device_;
  solo.report = lane.report;
  solo.max_waiting = options.max_waiting;
  solo.now = options.now;
  solo.rates = options.rates;
  lane_ = *Lane::Create(std::move(lane));
  solo_ = *SoloLane::Create(std::move(solo));
}

ShardWork LaneHost::Work(const AttentionSpec& spec, int32_t rank, int32_t ranks,
                         const std::string& job) {
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

std::vector<float> LaneHost::Output(const StagedShard& shard, TensorId id) {
  for (size_t i = 0; i < shard.shape().tensors.size(); ++i) {
    const TensorInfo& tensor = shard.shape().tensors[i];
    if (tensor.id != id) continue;
    const auto* values = reinterpret_cast<const float*>(shard.tensor_data(i));
    return std::vector<float>(values, values + shard.shape().rows(tensor) * tensor.row_bytes() / 4);
  }
  return {};
}

LaneHost::Options HeldUpBy(Gate* gate) {
  LaneHost::Options options;
  options.before_call = [gate] {
    gate->Pass();
    return absl::OkStatus();
  };
  return options;
}

AttentionSpec LaneSpec(int64_t rows) {
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

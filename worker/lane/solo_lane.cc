#include "worker/lane/solo_lane.h"

#include <algorithm>
#include <utility>

#include "attention/spec/tensor_bytes.h"
#include "attention/spec/tensor_table.h"
#include "base/status_macros.h"
#include "worker/agent/agent_values.h"
#include "worker/device/device.h"

namespace annulus {
namespace {

// The longest time for which a job may occupy a thread that also serves other calls.
constexpr absl::Duration kShort = absl::Microseconds(500);
// Limit of sequences × masks plus ranges of masks. Such a program is built in a fraction of kShort.
constexpr size_t kMostParts = 64;
// Limit of all tensors: with few rows over many keys, memory dominates, not products.
constexpr int64_t kMostBytes = 2 << 20;

bool IsSmall(const AttentionSpec& spec) {
  const std::vector<TensorInfo> table = TensorTable(spec);
  int64_t bytes = 0;
  for (const Direction direction :
       {Direction::kInput, Direction::kLent, Direction::kOutput, Direction::kKept})
    bytes += TensorBytes(table, spec, direction);
  return bytes <= kMostBytes;
}

bool IsSimple(const AttentionSpec& spec) {
  size_t parts = spec.sequences.size() * std::max<size_t>(1, spec.masks.size());
  static_assert(kMaskFields == 10, "a new field may cut the rows into many parts");
  for (const Mask& mask : spec.masks) parts += mask.ranges.size();
  return parts <= kMostParts &&
         std::none_of(spec.masks.begin(), spec.masks.end(),
                      [](const Mask& mask) { return mask.chunk.has_value(); });
}

}  // namespace

absl::StatusOr<std::unique_ptr<SoloLane>> SoloLane::Create(Options options) {
  const Engine& engine = options.engine;
  ASSIGN_OR_RETURN(std::unique_ptr<Device> device,
                   engine.make_solo_device ? engine.make_solo_device() : engine.make_device());
  ASSIGN_OR_RETURN(std::unique_ptr<AttentionKernel> kernel,
                   options.engine.make_kernel(device.get()));
  return std::unique_ptr<SoloLane>(
      new SoloLane(std::move(options), std::move(device), std::move(kernel)));
}

SoloLane::SoloLane(Options options, std::unique_ptr<Device> device,
                   std::unique_ptr<AttentionKernel> kernel)
    : options_(std::move(options)),
      device_(std::move(device)),
      kernel_(std::move(kernel)),
      queue_(/*limit=*/1) {}

SoloLane::~SoloLane() {
  MutexLock lock(&mutex_);
  waiting_.clear();
  ready_.clear();
  stop_ = true;
  while (here_) idle_.Wait(&mutex_);
}

void SoloLane::Add(ShardWork work) {
  MutexLock lock(&mutex_);
  const ShardId id = work.id;
  waiting_[id] = std::move(work);
}

void SoloLane::Run(const ShardId& id) {
  bool full = false;
  std::optional<ShardWork> here;
  {
    MutexLock lock(&mutex_);
    const auto waiting = waiting_.find(id);
    if (waiting == waiting_.end() || Find(id) != ready_.end()) return;
    full = ready_.size() >= options_.max_waiting;
    if (!full) {
      const ShardWork& work = waiting->second;
      const absl::Duration ahead = work.request.execution.priority * kPriorityStep;
      ready_.push_back({id, work.principal, options_.now() - ahead});
      if (std::exchange(draining_, true)) return;
      // If other shards are arriving, the lane's own thread gives more throughput.
      here_ = waiting_.size() == 1 && IsShort(work);
      if (here_) here = BeginLocked();
    }
  }
  if (here.has_value()) return RunHere(*here);
  if (!full) return queue_.PostAlways([this] { Drain(); });
  Release(id);
  options_.report(ShardFailedEvent(id, LaneFullError("jobs")));
}

void SoloLane::Release(const ShardId& id) {
  ShardWork released;  // Destroyed without the lock.
  MutexLock lock(&mutex_);
  if (running_ == id) stop_ = true;
  const auto waiting = waiting_.find(id);
  if (waiting == waiting_.end()) return;
  released = std::move(waiting->second);
  waiting_.erase(waiting);
  if (const auto ready = Find(id); ready != ready_.end()) ready_.erase(ready);
}

std::deque<SoloLane::Ready>::iterator SoloLane::Find(const ShardId& id) {
  return std::find_if(ready_.begin(), ready_.end(), [&](const Ready& r) { return r.id == id; });
}

ShardId SoloLane::TakeNext() {
  auto next = ready_.begin();
  for (auto other = next; other != ready_.end(); ++other) {
    if (other->principal == next->principal && other->time < next->time) next = other;
  }
  const ShardId id = next->id;
  // The first entry's turn is used up, so it takes the place of the entry that runs.
  *next = std::move(ready_.front());
  ready_.pop_front();
  return id;
}

std::optional<ShardWork> SoloLane::Begin() {
  MutexLock lock(&mutex_);
  draining_ = !ready_.empty();
  if (!draining_) return std::nullopt;
  return BeginLocked();
}

ShardWork SoloLane::BeginLocked() {
  const auto waiting = waiting_.find(TakeNext());
  ShardWork work = std::move(waiting->second);
  waiting_.erase(waiting);
  running_ = work.id;
  stop_ = false;
  return work;
}

void SoloLane::End() {
  MutexLock lock(&mutex_);
  running_.reset();
}

void SoloLane::Drain() {
  while (const std::optional<ShardWork> work = Begin()) DoRun(*work);
}

void SoloLane::RunHere(const ShardWork& work) {
  DoRun(work);
  MutexLock lock(&mutex_);
  draining_ = !ready_.empty();
  if (draining_) queue_.PostAlways([this] { Drain(); });
  here_ = false;
  idle_.SignalAll();
}

bool SoloLane::IsShort(const ShardWork& work) const {
  const AttentionSpec& spec = work.request.spec;
  const KernelRates* rates = RatesOf(spec, options_.rates);
  if (rates == nullptr || !options_.engine.any_thread) return false;
  if (!IsSimple(spec) || !IsSmall(spec)) return false;
  double pairs = 0;
  for (const Sequence& sequence : spec.sequences)
    pairs += static_cast<double>(sequence.q_len) * static_cast<double>(sequence.kv_len);
  const KernelRate rate = RateOf(spec, *rates);
  const KernelWork all{pairs * spec.q_heads, static_cast<double>(spec.q_rows() * spec.q_heads),
                       static_cast<double>(spec.kv_rows() * spec.kv_heads)};
  return absl::Seconds(SecondsOf(all, rate)) <= kShort;
}

void SoloLane::DoRun(const ShardWork& work) {
  gauge_.Begin("Solo", work.id, 0);
  const absl::StatusOr<ExecutionStats> stats = Execute(work);
  gauge_.End();
  // A stopped run was released, so no report is needed. A device fault is always reported, because
  // it ends the process.
  if (stats.ok()) {
    options_.report(OutputReadyEvent(work.id, *stats, options_.engine.description));
  } else if (!stop_ || IsDeviceFault(stats.status())) {
    options_.report(ShardFailedEvent(work.id, stats.status()));
  }
  End();
}

absl::StatusOr<ExecutionStats> SoloLane::Execute(const ShardWork& work) {
  ASSIGN_OR_RETURN(const std::shared_ptr<ShardRun> run,
                   PrepareRun(work, options_.device_budget.get(), device_.get(), *kernel_, &memo_));
  Executor::Options options;
  options.program = run->program;
  options.memory = run->memory;
  options.device = device_.get();
  options.kernel = kernel_.get();
  options.control = {&stop_, gauge_.progress()};
  Executor executor(std::move(options));
  RETURN_IF_ERROR(executor.CopyIn(run->Tensors()));
  const auto steps = static_cast<int32_t>(run->program->schedule.steps.size());
  RETURN_IF_ERROR(executor.Run({0, steps}));
  RETURN_IF_ERROR(executor.CopyOut(run->Tensors()));
  return executor.stats();
}

}  // namespace annulus

#include "worker/kernel/cuda/cuda_kernel.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "worker/kernel/cuda/launch/hopper_config.h"
#include "worker/kernel/cuda/launch/hopper_plan.h"
#include "worker/kernel/cuda/launch/key_split.h"
#include "worker/kernel/cuda/launch/launch_cost.h"
#include "worker/kernel/cuda/launch/launch_plan.h"
#include "worker/kernel/cuda/launch/visible_rows.h"
#include "worker/kernel/cuda/ops/op_plan.h"
#include "worker/kernel/cuda/sm80/gradient_launch.h"
#include "worker/kernel/cuda/sm90/hopper_gradient_config.h"
#include "worker/kernel/cuda/sm90/hopper_gradient_plan.h"

namespace annulus::cuda {
namespace {

absl::Status Lacks(absl::string_view what) {
  return absl::UnimplementedError(absl::StrCat("the CUDA kernel does not serve ", what));
}

absl::Status CheckServed(const KernelJob& job, absl::Span<const KernelTask> tasks) {
  const BlockLayout& layout = *job.layout;
  if (layout.dtype() != DataType::kFp32 && layout.dtype() != DataType::kFp16 &&
      layout.dtype() != DataType::kBf16)
    return Lacks(DataTypeName(layout.dtype()));
  if (job.spec->arithmetic == Arithmetic::kBf16x3) return Lacks("bf16x3");
  if (layout.head_dim() > kMaxDim || layout.value_dim() > kMaxDim)
    return Lacks(absl::StrCat("head dimensions above ", kMaxDim));
  for (const KernelTask& task : tasks)
    if (task.q.block.kind != tasks[0].q.block.kind) return Lacks("two operations in one call");
  return absl::OkStatus();
}

bool IsGradients(absl::Span<const KernelTask> tasks) {
  return !tasks.empty() && tasks[0].q.block.kind == BlockKind::kQGrad;
}

// The tasks of a call as its launches take them, with the visible keys of their rows.
class VisibleTasks {
 public:
  VisibleTasks(const KernelJob& job, absl::Span<const KernelTask> tasks, const LongKeysRule& rule,
               ComputePool& pool)
      : tasks_(tasks), visible_(std::make_unique<VisibleRows>(*job.mask, tasks, pool)) {
    parts_ = CutLongKeys({job, tasks, *visible_}, rule);
    if (parts_.empty()) return;
    tasks_ = parts_;
    visible_ = std::make_unique<VisibleRows>(*job.mask, tasks_, pool);
  }

  absl::Span<const KernelTask> tasks() const { return tasks_; }
  const VisibleRows& visible() const { return *visible_; }

 private:
  std::vector<KernelTask> parts_;
  absl::Span<const KernelTask> tasks_;
  std::unique_ptr<VisibleRows> visible_;
};

// Splits pieces, or the rows of one piece, in two. The second half is empty if nothing can be
// split.
std::pair<LaunchPieces, LaunchPieces> HalvesOf(const LaunchPieces& pieces) {
  const auto middle = pieces.begin() + static_cast<std::ptrdiff_t>(pieces.size() / 2);
  if (pieces.size() > 1) return {{pieces.begin(), middle}, {middle, pieces.end()}};
  TaskPiece first = pieces[0], second = pieces[0];
  const int64_t row = (first.q_begin + first.q_end) / 2 / kOwnRows * kOwnRows;
  if (row <= first.q_begin) return {pieces, {}};
  first.q_end = second.q_begin = row;
  return {{first}, {second}};
}

absl::Status CheckStop(const KernelControl& control) {
  if (!control.stopped()) return absl::OkStatus();
  return absl::CancelledError("the kernel was stopped");
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaKernel>> CudaKernel::Create(Options options) {
  ASSIGN_OR_RETURN(std::unique_ptr<ComputePool> pool, ComputePool::Create(options.threads));
  return std::unique_ptr<CudaKernel>(new CudaKernel(std::move(options), std::move(pool)));
}

std::string CudaKernel::Description() const {
  return absl::StrCat(launcher_->has_hopper() ? "cuda/wgmma+mma (" : "cuda/mma (",
                      launcher_->Description(), ")");
}

absl::Status CudaKernel::Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                                    const KernelControl& control) {
  RETURN_IF_ERROR(CheckServed(job, tasks));
  if (IsGradients(tasks)) return AddGradients(job, tasks, control);
  const bool hopper = launcher_->has_hopper() && HopperServes(job, tasks);
  KvSplit cut = SplitKeys(job, tasks, hopper, launcher_->partial_bytes());
  return cut.chunks > 1 ? AttendChunks(job, std::move(cut), control) : Attend(job, tasks, control);
}

// All chunks go into one launch, unless their tables are too large.
absl::Status CudaKernel::AttendChunks(const KernelJob& job, KvSplit cut,
                                      const KernelControl& control) {
  const int64_t bytes = job.layout->BlockBytes(cut.partial);
  const BlockView target = cut.tasks[0].out_q;
  const auto partial = [&](int32_t chunk) {
    return BlockView{cut.partial, launcher_->partials() + (chunk - 1) * bytes, 0};
  };
  BlockView all = partial(1);  // The partials are contiguous, so they are one block of many rows.
  const int64_t rows = cut.partial.row_end - cut.partial.row_begin;
  all.block.row_end = all.block.row_begin + (cut.chunks - 1) * rows;
  ASSIGN_OR_RETURN(const OpArgs empty, MakeOpArgs(job, {KernelOp::Kind::kIdentity, {}, all}));
  RETURN_IF_ERROR(LaunchOp(empty));
  for (size_t t = 0; t < cut.tasks.size(); ++t)
    if (cut.chunk[t] > 0) cut.tasks[t].out_q = partial(cut.chunk[t]);
  RETURN_IF_ERROR(Attend(job, cut.tasks, control));
  ASSIGN_OR_RETURN(
      const OpArgs merge,
      MakeMergeArgs(job, {KernelOp::Kind::kMerge, partial(1), target}, cut.chunks - 1, bytes));
  return LaunchOp(merge);
}

absl::Status CudaKernel::Attend(const KernelJob& job, absl::Span<const KernelTask> tasks,
                                const KernelControl& control) {
  const VisibleTasks seen(job, tasks, {max_work_, 1}, *pool_);
  ForwardKind kind = KindOf(job);
  std::vector<std::byte> maps;
  ASSIGN_OR_RETURN(kind.hopper, HopperTakes(job, seen.tasks(), &maps));
  LaunchSplitRule rule;
  rule.hopper = kind.hopper;
  rule.max_bytes = launcher_->max_tables();
  rule.max_work = max_work_;
  ASSIGN_OR_RETURN(const std::vector<LaunchPieces> launches,
                   SplitLaunches(job, seen.tasks(), seen.visible(), rule));
  for (const LaunchPieces& pieces : launches) {
    RETURN_IF_ERROR(CheckStop(control));
    Launch launch = MakeLaunch(job, seen.tasks(), seen.visible(), pieces, &memory_, kind.hopper);
    if (kind.hopper) PutMaps(maps, pieces, launch.bytes.data() + launch.args.at.maps);
    ASSIGN_OR_RETURN(launch.args.tables, launcher_->Upload(launch.bytes));
    memory_.bytes = std::move(launch.bytes);
    RETURN_IF_ERROR(launcher_->Forward(kind, launch.args, launch.blocks));
    if (kind.hopper) ++hopper_launches_;
    control.Count(launch.blocks);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> CudaKernel::HopperTakes(const KernelJob& job,
                                             absl::Span<const KernelTask> tasks,
                                             std::vector<std::byte>* maps) {
  if (!launcher_->has_hopper() || !HopperServes(job, tasks)) return false;
  return EncodeMaps(MapsOf(job, tasks), maps);
}

absl::StatusOr<bool> CudaKernel::EncodeMaps(const std::vector<TensorMapSpec>& specs,
                                            std::vector<std::byte>* maps) {
  maps->resize(specs.size() * kMapBytes);
  // All maps are encoded before the first launch: no other kernel may add again the part that this
  // one has added.
  const absl::Status encoded = launcher_->EncodeMaps(specs, maps->data());
  if (encoded.ok()) return true;
  if (!absl::IsUnimplemented(encoded)) return encoded;
  if (!std::exchange(told_of_refusal_, true))
    LogWarning(kNoJob,
               "the portable kernel is used instead of the Hopper kernel: ", encoded.message());
  return false;
}

absl::StatusOr<bool> CudaKernel::HopperTakesGradients(const KernelJob& job,
                                                      absl::Span<const KernelTask> tasks,
                                                      GradientMaps* maps) {
  if (!launcher_->has_hopper_gradients() || !HopperServesGradients(job, tasks)) return false;
  ASSIGN_OR_RETURN(const bool keys, EncodeMaps(GradientMapsOf(job, tasks, GradientSide::kQueries),
                                               &maps->of_queries));
  if (!keys) return false;
  return EncodeMaps(GradientMapsOf(job, tasks, GradientSide::kKeysAndValues), &maps->of_keys);
}

absl::Status CudaKernel::AddGradients(const KernelJob& job, absl::Span<const KernelTask> tasks,
                                      const KernelControl& control) {
  const VisibleTasks seen(job, tasks, {max_work_, TurnsOf(job)}, *pool_);
  GradientMaps maps;
  ASSIGN_OR_RETURN(const bool hopper, HopperTakesGradients(job, seen.tasks(), &maps));
  const GradientCall call = {{job, seen.tasks(), seen.visible()}, control};
  ASSIGN_OR_RETURN(
      const std::vector<LaunchPieces> launches,
      CutGradients(job, seen.tasks(), seen.visible(), launcher_->max_tables(), max_work_));
  for (const LaunchPieces& pieces : launches) {
    if (!hopper) {
      RETURN_IF_ERROR(AddPortably(call, pieces, nullptr));
      continue;
    }
    RETURN_IF_ERROR(AddByHopper(call, pieces, GradientSide::kQueries, maps.of_queries));
    RETURN_IF_ERROR(AddByHopper(call, pieces, GradientSide::kKeysAndValues, maps.of_keys));
  }
  return absl::OkStatus();
}

absl::Status CudaKernel::AddPortably(const GradientCall& call, const LaunchPieces& pieces,
                                     const GradientSide* side) {
  const CallView& view = call.view;
  RETURN_IF_ERROR(CheckStop(call.control));
  GradientLaunch launch = MakeGradientLaunch(view.job, view.tasks, view.visible, pieces, &memory_);
  ASSIGN_OR_RETURN(launch.args.forward.tables, launcher_->Upload(launch.bytes));
  memory_.bytes = std::move(launch.bytes);
  for (const GradientGrid& grid : launch.grids) {
    if (side != nullptr && grid.side != *side) continue;
    RETURN_IF_ERROR(CheckStop(call.control));
    RETURN_IF_ERROR(
        launcher_->Gradients({KindOf(view.job), grid.side}, launch.ArgsOf(grid), grid.blocks));
    call.control.Count(grid.blocks);
  }
  return absl::OkStatus();
}

absl::Status CudaKernel::AddByHopper(const GradientCall& call, const LaunchPieces& pieces,
                                     GradientSide side, const std::vector<std::byte>& maps) {
  const CallView& view = call.view;
  RETURN_IF_ERROR(CheckStop(call.control));
  HopperGradientLaunch launch =
      MakeHopperGradients(view.job, view.tasks, view.visible, pieces, side, &memory_);
  const auto bytes = static_cast<int64_t>(launch.bytes.size());
  if (launch.blocks > 0 && bytes <= launcher_->max_tables()) {
    PutMaps(maps, pieces, launch.bytes.data() + launch.args.forward.at.maps);
    ASSIGN_OR_RETURN(launch.args.forward.tables, launcher_->Upload(launch.bytes));
    ForwardKind kind = KindOf(view.job);
    kind.hopper = true;
    RETURN_IF_ERROR(launcher_->Gradients({kind, side}, launch.args, launch.blocks));
    ++hopper_gradient_launches_;
    call.control.Count(launch.blocks);
  }
  memory_.bytes = std::move(launch.bytes);
  if (bytes <= launcher_->max_tables()) return absl::OkStatus();
  // The pieces were cut for the portable kernel's tables.
  const auto [first, second] = HalvesOf(pieces);
  if (second.empty()) return AddPortably(call, pieces, &side);
  RETURN_IF_ERROR(AddByHopper(call, first, side, maps));
  return AddByHopper(call, second, side, maps);
}

absl::Status CudaKernel::LaunchOp(const OpArgs& args) {
  return launcher_->Op(args, OpBlocks(args));
}

absl::Status CudaKernel::Apply(const KernelJob& job, const KernelOp& op) {
  ASSIGN_OR_RETURN(OpArgs args, MakeOpArgs(job, op));
  if (args.cells == 0) return absl::OkStatus();
  if (NeedsSinks(job, args)) {
    const std::vector<float>& sinks = job.spec->modifiers.sinks;
    ASSIGN_OR_RETURN(args.sinks,
                     launcher_->Upload({reinterpret_cast<const std::byte*>(sinks.data()),
                                        sinks.size() * sizeof(float)}));
  }
  return LaunchOp(args);
}

}  // namespace annulus::cuda

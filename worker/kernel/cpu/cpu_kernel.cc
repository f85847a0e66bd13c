#include "worker/kernel/cpu/cpu_kernel.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/kernel/cpu/block_ops.h"
#include "worker/kernel/cpu/call_plan.h"
#include "worker/kernel/cpu/flush_denormals.h"
#include "worker/kernel/cpu/gradient_plan.h"
#include "worker/kernel/cpu/isa/isa_dispatch.h"
#include "worker/kernel/cpu/row_loop.h"
#include "worker/kernel/visibility.h"

namespace annulus {
namespace {

const TileIsa& GradientIsaFor(const TileIsa& isa, DataType dtype) {
  const TileIsa& table = IsaFor(isa, dtype);
  return table.gradients == nullptr ? *isa.fp32 : table;
}

}  // namespace

CpuGradients::CpuGradients(const TileIsa& isa, ComputePool* pool)
    : isa_(isa), pool_(pool), scratch_(pool->threads()) {}

absl::Status CpuGradients::Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                                      const KernelControl& control) {
  const CallVisibility visible(*job.mask, tasks, *pool_);
  GradientCall call;
  call.job = &job;
  call.isa = &GradientIsaFor(isa_, job.layout->dtype());
  call.tasks = tasks;
  call.visible = &visible;
  call.control = control;
  for (GradientScratch& scratch : scratch_)
    RETURN_IF_ERROR(scratch.Reserve(*call.isa, *job.layout));
  const GradientRounds rounds = RoundsOf(job, tasks, pool_->threads());
  call.stripe_slots = rounds.stripe_slots;
  ForEachRound(tasks, visible, rounds, control, [&](absl::Span<const GradientItem> items) {
    pool_->ParallelFor(static_cast<int64_t>(items.size()), [&](int64_t index, int thread) {
      const FlushDenormals flush;
      GradientLoop(call, scratch_[thread]).Run(items[index]);
    });
    return !control.stopped();
  });
  return control.stopped() ? absl::CancelledError("the kernel was stopped") : absl::OkStatus();
}

namespace {

absl::Status Lacks(absl::string_view what) {
  return absl::UnimplementedError(absl::StrCat("the CPU kernel does not serve ", what));
}

// Packed keys that a thread may keep: its share of the last-level cache.
constexpr int64_t kKeptBytes = int64_t{8} << 20;

absl::Status Stopped() { return absl::CancelledError("the kernel was stopped"); }

absl::Status CheckServed(const KernelJob& job, absl::Span<const KernelTask> tasks) {
  const DataType dtype = job.layout->dtype();
  if (dtype != DataType::kFp32 && dtype != DataType::kFp16 && dtype != DataType::kBf16)
    return Lacks(DataTypeName(dtype));
  if (job.layout->head_dim() > kMaxHeadDim || job.layout->value_dim() > kMaxHeadDim)
    return Lacks(absl::StrCat("head dimensions above ", kMaxHeadDim));
  for (const KernelTask& task : tasks)
    if (task.q.block.kind != tasks[0].q.block.kind) return Lacks("two operations in one call");
  return absl::OkStatus();
}

// True if threads pack keys when they need them. Then no thread waits for a round of packing, and
// packed keys stay in the cache of their reader. A single tile uses each key about once. If an item
// may have all rows of its head, only heads are left to share out.
bool PacksInPassing(absl::Span<const KernelTask> tasks, int group, int threads) {
  if (CoversOneTile(tasks, group)) return true;
  if (!CoversFewTiles(tasks, group)) return false;
  const Block rows = RowsOfTasks(tasks);
  const int heads = (rows.head_end + group - 1) / group - rows.head_begin / group;
  return heads % threads == 0 || heads >= 4 * threads;
}

PhaseLimits PassingLimits(int threads) {
  PhaseLimits limits;
  limits.max_packs = std::numeric_limits<int64_t>::max();
  limits.threads = threads;
  limits.tiles = kPassingTiles;
  limits.passing = true;
  return limits;
}

bool IsGradients(absl::Span<const KernelTask> tasks) {
  return !tasks.empty() && tasks[0].q.block.kind == BlockKind::kQGrad;
}

}  // namespace

CpuKernel::CpuKernel(const TileIsa& isa, int64_t pack_bytes, std::shared_ptr<ComputePool> pool)
    : isa_(isa),
      pack_bytes_(pack_bytes),
      pool_(std::move(pool)),
      kept_(pool_->threads()),
      scratch_(pool_->threads()),
      gradients_(isa, pool_.get()) {}

absl::StatusOr<std::unique_ptr<CpuKernel>> CpuKernel::Create(const Options& options) {
  const TileIsa* isa = options.isa;
  if (isa == nullptr) {
    ASSIGN_OR_RETURN(isa, SelectIsa(options.path));
  }
  std::shared_ptr<ComputePool> pool = options.pool;
  if (pool == nullptr) {
    ASSIGN_OR_RETURN(pool, ComputePool::Create(options.threads));
  }
  return std::unique_ptr<CpuKernel>(new CpuKernel(*isa, options.pack_bytes, std::move(pool)));
}

std::string CpuKernel::Description() const { return absl::StrCat("cpu/", isa_.name); }

absl::Status CpuKernel::Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                                   const KernelControl& control) {
  RETURN_IF_ERROR(CheckServed(job, tasks));
  if (IsGradients(tasks)) return gradients_.Accumulate(job, tasks, control);
  KvSplit cut = SplitKv(job, tasks);
  if (cut.chunks > 1) return AttendChunks(job, tasks, std::move(cut), control);
  return Attend(job, tasks, CallVisibility(*job.mask, tasks, *pool_), control);
}

absl::Status CpuKernel::AttendChunks(const KernelJob& job, absl::Span<const KernelTask> tasks,
                                     KvSplit cut, const KernelControl& control) {
  const BlockView target = tasks[0].out_q;
  const int64_t bytes = job.layout->BlockBytes(cut.partial);
  std::vector<std::byte> memory((cut.chunks - 1) * bytes);
  for (KernelTask& part : cut.tasks) part.task.begins = part.task.ends = {};
  KernelOp op;
  op.kind = KernelOp::Kind::kIdentity;
  op.target = target;
  for (const KernelTask& bound : tasks) RETURN_IF_ERROR(Apply(job, op, bound, bound.task.begins));
  const auto partial = [&](int32_t chunk) {
    return BlockView{cut.partial, memory.data() + (chunk - 1) * bytes, 0};
  };
  for (int32_t chunk = 1; chunk < cut.chunks; ++chunk) {
    op.kind = KernelOp::Kind::kIdentity;
    op.target = partial(chunk);
    RETURN_IF_ERROR(Apply(job, op));
  }
  for (size_t t = 0; t < cut.tasks.size(); ++t) {
    if (cut.chunk[t] > 0) cut.tasks[t].out_q = partial(cut.chunk[t]);
  }
  RETURN_IF_ERROR(AttendCut(job, cut.tasks, control));
  for (int32_t chunk = 1; chunk < cut.chunks; ++chunk) {
    op.kind = KernelOp::Kind::kMerge;
    op.source = partial(chunk);
    op.target = target;
    RETURN_IF_ERROR(Apply(job, op));
  }
  op.kind = KernelOp::Kind::kFinish;
  op.source = target;
  for (const KernelTask& bound : tasks) {
    op.target = bound.out;
    RETURN_IF_ERROR(Apply(job, op, bound, bound.task.ends));
  }
  return absl::OkStatus();
}

absl::Status CpuKernel::Apply(const KernelJob& job, const KernelOp& op, const KernelTask& bound,
                              Interval rows) {
  if (rows.length() == 0) return absl::OkStatus();
  return ApplyBlockOp(job, op, isa_, *pool_, {rows, bound.task.head_begin, bound.task.head_end});
}

absl::StatusOr<const TileIsa*> CpuKernel::IsaOf(const KernelJob& job) const {
  if (job.spec->arithmetic != Arithmetic::kBf16x3) return &IsaFor(isa_, job.layout->dtype());
  if (isa_.bf16x3 == nullptr) return Lacks("bf16x3 without AMX");
  return isa_.bf16x3;
}

absl::Status CpuKernel::AttendCut(const KernelJob& job, absl::Span<const KernelTask> tasks,
                                  const KernelControl& control) {
  RowCall call;
  call.job = &job;
  ASSIGN_OR_RETURN(call.isa, IsaOf(job));
  const CallVisibility visible(*job.mask, tasks, *pool_);
  call.tasks = tasks;
  call.visible = &visible;
  call.control = control;
  if (!AttendsRows(call)) return Attend(job, tasks, visible, control);
  const std::vector<Interval> chunks = ChunksOf(tasks);
  pool_->ParallelFor(static_cast<int64_t>(chunks.size()), [&](int64_t index, int) {
    const FlushDenormals flush;
    RowLoop(call).Run(chunks[index]);
  });
  return control.stopped() ? Stopped() : absl::OkStatus();
}

absl::Status CpuKernel::Attend(const KernelJob& job, absl::Span<const KernelTask> tasks,
                               const CallVisibility& visible, const KernelControl& control) {
  ASSIGN_OR_RETURN(const TileIsa* const found, IsaOf(job));
  const TileIsa& isa = *found;
  const CallPlan plan = PlanCall(tasks, visible, job.layout->group());
  const int64_t pack_bytes = PackBytes(isa, *job.layout);
  PhaseLimits limits{std::max<int64_t>(1, pack_bytes_ / pack_bytes), pool_->threads(), isa.tiles};
  limits.most_kept = std::min(kKeptBytes, pack_bytes_ / pool_->threads()) / pack_bytes;
  if (PacksInPassing(tasks, job.layout->group(), pool_->threads()))
    limits = PassingLimits(pool_->threads());
  const std::vector<Phase> phases = PlanPhases(plan, limits, control);
  if (control.stopped()) return Stopped();
  if (const int64_t kept = MostKept(phases); kept > 0)
    for (KeptKeys& one : kept_) RETURN_IF_ERROR(one.Reserve(isa, *job.layout, kept));
  if (const int64_t packs = LargestPhase(phases); packs > 0)
    RETURN_IF_ERROR(packed_.Reserve(isa, *job.layout, packs, pack_bytes_ / pack_bytes));
  TileCall call;
  call.job = &job;
  call.isa = &isa;
  call.plan = &plan;
  call.control = control;
  for (const Phase& phase : phases) {
    call.packed = phase.kept > 0 ? nullptr : &packed_;
    RunPhase(call, phase);
    if (control.stopped()) return Stopped();
  }
  return absl::OkStatus();
}

void CpuKernel::RunPhase(const TileCall& call, const Phase& phase) {
  if (call.packed != nullptr) {
    const std::vector<PackedKeys::Order> orders = packed_.Begin(*call.plan, phase);
    pool_->ParallelFor(static_cast<int64_t>(orders.size()),
                       [&](int64_t index, int) { packed_.Pack(orders[index]); });
  }
  pool_->ParallelFor(static_cast<int64_t>(phase.items.size()), [&](int64_t index, int thread) {
    const FlushDenormals flush;
    TileLoop(call, scratch_[thread], &kept_[thread]).Run(phase, phase.items[index]);
  });
}

absl::Status CpuKernel::Apply(const KernelJob& job, const KernelOp& op) {
  return ApplyBlockOp(job, op, isa_, *pool_);
}

}  // namespace annulus

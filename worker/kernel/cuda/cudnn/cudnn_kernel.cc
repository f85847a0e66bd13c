#include "worker/kernel/cuda/cudnn/cudnn_kernel.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "worker/kernel/cuda/cudnn/cudnn_library.h"
#include "worker/kernel/cuda/ops/op_plan.h"

namespace annulus::cuda {
namespace {

// Prepare waits this long for messages to end before it checks `stop` again.
constexpr absl::Duration kAskAgain = absl::Milliseconds(10);

// The shape for which kernels are compiled first: long enough to get the engine of long rectangles.
CudnnShape FirstShape(DataType dtype) {
  CudnnShape shape;
  shape.dtype = dtype;
  shape.head_dim = shape.value_dim = 128;
  shape.q_heads = 8;
  shape.kv_heads = 2;
  shape.rows = shape.keys = 4096;
  shape.q_stride = 8 * 128;
  shape.kv_stride = 2 * 2 * 128;
  shape.out_stride = 8 * 128 + 2 * 8;
  return shape;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudnnKernel>> CudnnKernel::Create(Options options) {
  std::unique_ptr<CudnnKernel> kernel(new CudnnKernel(std::move(options)));
  RETURN_IF_ERROR(kernel->Open());
  return kernel;
}

CudnnKernel::~CudnnKernel() {
  // Queued work may still use all of this.
  (void)options_.device->Synchronize();
  plans_.clear();
  first_.clear();
  kernels_.clear();
  if (target_.handle != nullptr) options_.api->DestroyHandle(target_.handle);
}

absl::Status CudnnKernel::Open() {
  RETURN_IF_ERROR(options_.stream().status());
  target_.api = options_.api.get();
  if (target_.api->CreateHandle(&target_.handle) != kCudnnSuccess) {
    return absl::FailedPreconditionError(
        absl::StrCat("cuDNN does not start: ", target_.api->LastError()));
  }
  ASSIGN_OR_RETURN(scratch_, options_.device->Allocate(options_.rule.scratch_bytes));
  ASSIGN_OR_RETURN(workspace_, options_.device->Allocate(kWorkspaceBytes));
  for (const DataType dtype : {DataType::kFp16, DataType::kBf16}) {
    const absl::Status loaded = LoadKernels(dtype);
    if (!loaded.ok())
      return absl::FailedPreconditionError(
          absl::StrCat("cuDNN cannot be used: ", loaded.message()));
  }
  return absl::OkStatus();
}

absl::Status CudnnKernel::LoadKernels(DataType dtype) {
  const CudnnShape shape = FirstShape(dtype);
  ASSIGN_OR_RETURN(CudnnGraph graph, CudnnGraph::Make(target_, shape));
  ASSIGN_OR_RETURN(CudnnKernels kernels, CudnnKernels::Make(target_.api, graph));
  ASSIGN_OR_RETURN(CudnnPlan plan, CudnnPlan::Make(target_, std::move(graph), kernels));
  kernels_.emplace(dtype, std::move(kernels));
  first_.push_back(std::move(plan));
  return absl::OkStatus();
}

std::string CudnnKernel::Description() const {
  return absl::StrCat(options_.other->Description(), " + cudnn ",
                      CudnnVersionText(options_.api->Version()));
}

absl::StatusOr<CudnnPlan> CudnnKernel::MakePlan(const CudnnShape& shape) const {
  ASSIGN_OR_RETURN(CudnnGraph graph, CudnnGraph::Make(target_, shape));
  ASSIGN_OR_RETURN(CudnnPlan plan,
                   CudnnPlan::Make(target_, std::move(graph), kernels_.at(shape.dtype)));
  if (plan.workspace_bytes() > kWorkspaceBytes) {
    return absl::UnimplementedError(
        absl::StrCat("a plan needs a workspace of ", plan.workspace_bytes(), " bytes"));
  }
  return plan;
}

const CudnnPlan* CudnnKernel::PlanOf(const CudnnShape& shape) const {
  const auto at = plans_.find(shape);
  return at != plans_.end() && at->second ? &*at->second : nullptr;
}

std::set<CudnnShape> CudnnKernel::NewShapes(const KernelJob& job,
                                            absl::Span<const KernelTask> rectangles) const {
  std::set<CudnnShape> shapes;
  for (const KernelTask& rectangle : rectangles) {
    const CudnnShape shape = ShapeOf(job, rectangle);
    if (plans_.count(shape) == 0) shapes.insert(shape);
  }
  return shapes;
}

absl::StatusOr<bool> CudnnKernel::MakePlans(const KernelJob& job,
                                            absl::Span<const KernelTask> rectangles,
                                            absl::Duration wait) {
  const size_t added = NewShapes(job, rectangles).size();
  if (added == 0) return true;
  if (options_.gate != nullptr && !options_.gate->BeginLoad(wait)) return false;
  absl::Status status;
  if (plans_.size() + added > options_.most_plans) {
    // All plans are dropped at once, so that the wait for the device is needed only once in many
    // calls.
    status = options_.device->Synchronize();
    if (status.ok()) plans_.clear();
  }
  if (status.ok()) status = AddPlans(job, rectangles);
  if (options_.gate != nullptr) options_.gate->EndLoad();
  RETURN_IF_ERROR(status);
  return true;
}

absl::Status CudnnKernel::AddPlans(const KernelJob& job, absl::Span<const KernelTask> rectangles) {
  RETURN_IF_ERROR(options_.stream().status());
  for (const KernelTask& rectangle : rectangles) {
    const CudnnShape shape = ShapeOf(job, rectangle);
    if (plans_.count(shape) > 0 || plans_.size() >= options_.most_plans) continue;
    absl::StatusOr<CudnnPlan> plan = MakePlan(shape);
    if (!plan.ok()) {
      LogWarning(kNoJob, "cuDNN is not used for ", shape.rows, " rows and ", shape.keys,
                 " keys: ", plan.status().message());
    }
    std::optional<CudnnPlan>& kept = plans_[shape];
    if (plan.ok()) kept.emplace(*std::move(plan));
  }
  return absl::OkStatus();
}

absl::Status CudnnKernel::Prepare(const KernelJob& job, absl::Span<const KernelTask> tasks,
                                  const KernelControl& control) {
  const CudnnCut cut = CutForCudnn(job, tasks, options_.rule);
  for (;;) {
    if (control.stopped()) return absl::CancelledError("the kernel was stopped");
    ASSIGN_OR_RETURN(const bool made, MakePlans(job, cut.rectangles, kAskAgain));
    if (made) return absl::OkStatus();
    control.Count(1);  // Counts as progress: the messages it waits for have their own watchdog.
  }
}

absl::Status CudnnKernel::Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                                     const KernelControl& control) {
  CudnnCut cut = CutForCudnn(job, tasks, options_.rule);
  if (cut.rectangles.empty()) return options_.other->Accumulate(job, tasks, control);
  RETURN_IF_ERROR(MakePlans(job, cut.rectangles, absl::ZeroDuration()).status());
  std::vector<std::pair<const KernelTask*, const CudnnPlan*>> planned;
  for (const KernelTask& rectangle : cut.rectangles) {
    const CudnnPlan* const plan = PlanOf(ShapeOf(job, rectangle));
    if (plan == nullptr)
      cut.rest.push_back(rectangle);
    else
      planned.emplace_back(&rectangle, plan);
  }
  if (!cut.rest.empty()) RETURN_IF_ERROR(options_.other->Accumulate(job, cut.rest, control));
  for (const auto& [rectangle, plan] : planned)
    RETURN_IF_ERROR(Attend(job, *rectangle, *plan, control));
  return absl::OkStatus();
}

absl::Status CudnnKernel::Told(const absl::Status& error) {
  RETURN_IF_ERROR(options_.device->Synchronize());
  return error;
}

absl::Status CudnnKernel::Pace(double work) {
  if (queued_ > 0 && queued_ + work > options_.rule.most_queued) {
    RETURN_IF_ERROR(options_.device->Synchronize());
    queued_ = 0;
  }
  queued_ += work;
  return absl::OkStatus();
}

absl::Status CudnnKernel::Attend(const KernelJob& job, const KernelTask& rectangle,
                                 const CudnnPlan& plan, const KernelControl& control) {
  RETURN_IF_ERROR(Pace(WorkOf(job, rectangle)));
  if (control.stopped()) return absl::CancelledError("the kernel was stopped");
  ASSIGN_OR_RETURN(const CudaStream stream, options_.stream());
  if (target_.api->SetStream(target_.handle, stream) != kCudnnSuccess)
    return Told(
        absl::InternalError(absl::StrCat("cuDNN refuses a stream: ", target_.api->LastError())));
  const auto scale = static_cast<float>(job.scale);
  CudnnTensors tensors = TensorsOf(job, rectangle, scratch_.get());
  tensors.scale = &scale;
  if (const absl::Status run = plan.Run(target_, tensors, workspace_.get()); !run.ok())
    return Told(run);
  const Task& task = rectangle.task;
  Block block = rectangle.out_q.block;
  block.row_begin = task.q_begin;
  block.row_end = task.q_end;
  block.head_begin = task.head_begin;
  block.head_end = task.head_end;
  ASSIGN_OR_RETURN(
      const OpArgs merge,
      MakeMeansArgs(job, block, MeansOf(job, rectangle, scratch_.get()), rectangle.out_q));
  const int64_t blocks = OpBlocks(merge);
  RETURN_IF_ERROR(options_.launcher->Op(merge, blocks));
  ++rectangles_;
  control.Count(blocks);
  return absl::OkStatus();
}

}  // namespace annulus::cuda

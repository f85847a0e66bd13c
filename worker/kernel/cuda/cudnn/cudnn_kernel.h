#ifndef ANNULUS_WORKER_KERNEL_CUDA_CUDNN_CUDNN_KERNEL_H_
#define ANNULUS_WORKER_KERNEL_CUDA_CUDNN_CUDNN_KERNEL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/device/device.h"
#include "worker/device/load_gate.h"
#include "worker/kernel/attention_kernel.h"
#include "worker/kernel/cuda/cudnn/cudnn_graph.h"
#include "worker/kernel/cuda/cudnn/cudnn_plan.h"
#include "worker/kernel/cuda/launch/launcher.h"

namespace annulus::cuda {

// A kernel of which cuDNN does the large rectangles that a mask leaves whole (cudnn_plan.h), and
// another kernel of the same device everything else, all operations included. A call's rectangles
// come after the rest of it, in list order, each by way of its means in scratch: sums are weight ·
// mean, which rounds them once more than running state is otherwise. The bits depend on the inputs
// and the list alone, as ever.
//
// cuDNN's kernels are compiled and loaded by Create, one for each type of elements. A plan of
// another shape takes milliseconds of the host, and what cuDNN loads for it is its own affair: so
// plans are made while no message is under way (LoadGate), by Prepare, which waits for that, or by
// Accumulate where it is so. A rectangle whose shape has no plan then is the other kernel's.
// most_plans are kept, and shapes of one call beyond so many are the other kernel's, too. Where
// more is queued than CudnnRule::most_queued, a call waits for the device before it goes on: so
// whoever watches its progress sees the device come on, and a call that is told to stop does. One
// owner thread.
class CudnnKernel : public AttentionKernel {
 public:
  // For whatever a plan asks for; a shape that asks for more is the other kernel's.
  static constexpr int64_t kWorkspaceBytes = int64_t{4} << 20;

  struct Options {
    std::shared_ptr<CudnnApi> api;
    // Does what cuDNN does not, and owns `launcher`.
    std::unique_ptr<AttentionKernel> other;
    Launcher* launcher = nullptr;
    // Gives the scratch and the workspace; outlives the kernel.
    Device* device = nullptr;
    // The queue to launch on, asked before every launch, and before anything else is asked of
    // cuDNN: makes the device the thread's current one.
    std::function<absl::StatusOr<CudaStream>()> stream;
    CudnnRule rule;
    size_t most_plans = 512;
    // Of the device; outlives the kernel. Null: nothing communicates.
    LoadGate* gate = nullptr;
  };
  // RESOURCE_EXHAUSTED; FAILED_PRECONDITION in one line where cuDNN does not serve this device.
  static absl::StatusOr<std::unique_ptr<CudnnKernel>> Create(Options options);
  ~CudnnKernel() override;

  bool prepares() const override { return true; }
  absl::Status Prepare(const KernelJob& job, absl::Span<const KernelTask> tasks,
                       const KernelControl& control) override;
  absl::Status Accumulate(const KernelJob& job, absl::Span<const KernelTask> tasks,
                          const KernelControl& control) override;
  absl::Status Apply(const KernelJob& job, const KernelOp& op) override {
    return options_.other->Apply(job, op);
  }
  // "cuda/mma (...) + cudnn 9.19.0".
  std::string Description() const override;
  // That cuDNN was given since Create.
  int64_t rectangles() const { return rectangles_; }

 private:
  explicit CudnnKernel(Options options) : options_(std::move(options)) {}
  absl::Status Open();
  absl::Status LoadKernels(DataType dtype);
  absl::StatusOr<CudnnPlan> MakePlan(const CudnnShape& shape) const;
  // nullptr: there is none; cuDNN does not serve the shape on this device.
  const CudnnPlan* PlanOf(const CudnnShape& shape) const;
  // Shapes of which no plan was asked yet.
  std::set<CudnnShape> NewShapes(const KernelJob& job,
                                 absl::Span<const KernelTask> rectangles) const;
  // Those that are missing, as many as there may be, in list order, where no message is under way
  // within `wait`; whether it was so.
  absl::StatusOr<bool> MakePlans(const KernelJob& job, absl::Span<const KernelTask> rectangles,
                                 absl::Duration wait);
  absl::Status AddPlans(const KernelJob& job, absl::Span<const KernelTask> rectangles);
  // cuDNN's error; or the device's, which cuDNN may be the first to meet.
  absl::Status Told(const absl::Status& error);
  // Makes room in the queue for a rectangle of so much work.
  absl::Status Pace(double work);
  absl::Status Attend(const KernelJob& job, const KernelTask& rectangle, const CudnnPlan& plan,
                      const KernelControl& control);

  const Options options_;
  CudnnTarget target_;
  DeviceMemory scratch_, workspace_;
  std::map<DataType, CudnnKernels> kernels_;
  std::vector<CudnnPlan> first_;  // They keep the kernels loaded.
  std::map<CudnnShape, std::optional<CudnnPlan>> plans_;
  int64_t rectangles_ = 0;
  double queued_ = 0;  // Work since the last wait for the device.
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_CUDNN_CUDNN_KERNEL_H_

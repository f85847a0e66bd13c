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

// A kernel in which cuDNN computes the large rectangles that a mask leaves whole (cudnn_plan.h).
// Another kernel of the same device computes the rest, and all operations. A call's rectangles run
// after the rest, in list order. Each goes through its means in scratch: sums are weight · mean, so
// they are rounded once more than other running state. The bits depend on the inputs and the list
// alone.
//
// Create compiles and loads cuDNN's kernels, one for each element type. A plan for another shape
// takes milliseconds on the host, and cuDNN may load code for it. So plans are made only while no
// message is under way (LoadGate): by Prepare, which waits for that, or by Accumulate if it is so
// at that moment. A rectangle whose shape has no plan goes to the other kernel.
//
// At most most_plans plans are kept; further shapes of one call go to the other kernel. When more
// than CudnnRule::most_queued work is queued, a call waits for the device before it continues. So
// its progress is that of the device, and a stopped call ends soon. One owner thread.
class CudnnKernel : public AttentionKernel {
 public:
  // The workspace of all plans; a shape that needs more goes to the other kernel.
  static constexpr int64_t kWorkspaceBytes = int64_t{4} << 20;

  struct Options {
    std::shared_ptr<CudnnApi> api;
    // Computes what cuDNN does not, and owns `launcher`.
    std::unique_ptr<AttentionKernel> other;
    Launcher* launcher = nullptr;
    // Allocates scratch and workspace; must outlive the kernel.
    Device* device = nullptr;
    // Returns the queue to launch on, and makes the device the thread's current one. Called before
    // every launch and before every other use of cuDNN.
    std::function<absl::StatusOr<CudaStream>()> stream;
    CudnnRule rule;
    size_t most_plans = 512;
    // The device's gate; must outlive the kernel. Null: nothing communicates.
    LoadGate* gate = nullptr;
  };
  // Errors: RESOURCE_EXHAUSTED; FAILED_PRECONDITION, in one line, if cuDNN does not serve this
  // device.
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
  // The number of rectangles that cuDNN has computed since Create.
  int64_t rectangles() const { return rectangles_; }

 private:
  explicit CudnnKernel(Options options) : options_(std::move(options)) {}
  absl::Status Open();
  absl::Status LoadKernels(DataType dtype);
  absl::StatusOr<CudnnPlan> MakePlan(const CudnnShape& shape) const;
  // The plan of a shape, or nullptr: there is none, or cuDNN does not serve the shape on this
  // device.
  const CudnnPlan* PlanOf(const CudnnShape& shape) const;
  // Shapes for which no plan has been requested yet.
  std::set<CudnnShape> NewShapes(const KernelJob& job,
                                 absl::Span<const KernelTask> rectangles) const;
  // Makes the missing plans, as many as allowed, in list order, once no message is under way; waits
  // at most `wait` for that. Returns false if messages were under way all that time.
  absl::StatusOr<bool> MakePlans(const KernelJob& job, absl::Span<const KernelTask> rectangles,
                                 absl::Duration wait);
  absl::Status AddPlans(const KernelJob& job, absl::Span<const KernelTask> rectangles);
  // Returns cuDNN's error, or the device's: cuDNN may be the first to report it.
  absl::Status Told(const absl::Status& error);
  // Makes room in the queue for a rectangle of `work` multiply-adds.
  absl::Status Pace(double work);
  absl::Status Attend(const KernelJob& job, const KernelTask& rectangle, const CudnnPlan& plan,
                      const KernelControl& control);

  const Options options_;
  CudnnTarget target_;
  DeviceMemory scratch_, workspace_;
  std::map<DataType, CudnnKernels> kernels_;
  std::vector<CudnnPlan> first_;  // Keep the kernels loaded.
  std::map<CudnnShape, std::optional<CudnnPlan>> plans_;
  int64_t rectangles_ = 0;
  double queued_ = 0;  // Work since the last wait for the device.
};

}  // namespace annulus::cuda

#endif  // ANNULUS_WORKER_KERNEL_CUDA_CUDNN_CUDNN_KERNEL_H_

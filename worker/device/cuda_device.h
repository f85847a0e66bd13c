#ifndef ANNULUS_WORKER_DEVICE_CUDA_DEVICE_H_
#define ANNULUS_WORKER_DEVICE_CUDA_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/device/cuda_context.h"
#include "worker/device/device.h"

namespace annulus {

// A lane's streams on a GPU: one for kernels, one for copies in and one for copies out. Events
// order them: copies in wait for nothing; kernels wait for copies in that were queued before them;
// copies out wait for kernels and copies in that were queued before them.
//
// The first device fault is kept: every later call returns it.
class CudaDevice final : public Device {
 public:
  // FAILED_PRECONDITION, RESOURCE_EXHAUSTED. `priority`: for all streams except that for transfers.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(
      std::shared_ptr<CudaContext> context, CudaPriority priority = CudaPriority::kGroup);
  ~CudaDevice() override;

  absl::StatusOr<DeviceMemory> Allocate(int64_t bytes) override;
  absl::Status CopyIn(const Copy2d& copy) override;
  absl::Status CopyOut(const Copy2d& copy) override;
  absl::Status Synchronize() override;
  void MarkKernels() override;
  absl::Time KernelsDone() override;
  std::string Description() const override { return context_->description(); }

  // For kernels: the stream for a launch. Call before every launch, because it makes the stream
  // wait for earlier copies in and makes this device the thread's current one.
  absl::StatusOr<CudaStream> Compute();
  // For kernels: copies parameters (tables of tasks) through a ring of 4 MiB, in launch order.
  // `source` may be freed after the call.
  absl::Status Upload(std::byte* target, const void* source, int64_t bytes);
  // For communicators: their stream, which has precedence over the others. OrderAfter makes
  // `stream` wait for all queued work.
  CudaStream transfers() const { return transfers_; }
  absl::Status OrderAfter(CudaStream stream);
  // Makes this device the thread's current one. Returns the fault if there is one.
  absl::Status MakeCurrent();
  // Converts the result of direct CUDA calls, launches included. Keeps a fault.
  absl::Status Check(CudaError error, absl::string_view what);

  const std::shared_ptr<CudaContext>& context() const { return context_; }
  CudaPriority priority() const { return priority_; }

 private:
  // Pinned memory for copies whose host side is not pinned.
  struct Bounce {
    std::shared_ptr<std::byte> memory;
    CudaEvent event = nullptr;
    bool in_use = false;
    // A copy from here to host memory, due when the event is reached. rows = 0: none.
    Copy2d deliver;
  };
  struct Queue {
    CudaStream stream = nullptr;
    CudaEvent reached = nullptr;
    bool used = false;  // True if used since the last Synchronize.
    std::vector<Bounce> bounces;
    int64_t bounce_bytes = 0;
    size_t next = 0;
  };

  CudaDevice(std::shared_ptr<CudaContext> context, CudaPriority priority)
      : context_(std::move(context)), priority_(priority) {}
  absl::Status Open();
  absl::Status OpenQueue(Queue* queue, int bounces, int64_t bounce_bytes);
  void Close(Queue* queue);
  // Work queued later on `later` waits for all work on `earlier`.
  absl::Status Order(Queue* earlier, CudaStream later);
  // Splits the copy into pieces that fit a bounce buffer of the queue.
  absl::Status CopyByBounces(Queue* queue, const Copy2d& copy, bool in);
  absl::Status CopyPiece(Queue* queue, const Copy2d& piece, bool in);
  absl::StatusOr<Bounce*> NextBounce(Queue* queue);
  absl::Status Drain(Queue* queue);
  absl::Status WaitFor(CudaEvent event);
  bool Pinned(const std::byte* data, int64_t stride, const Copy2d& copy) const;

  const std::shared_ptr<CudaContext> context_;
  const CudaPriority priority_;
  absl::Status fault_;
  Queue compute_, in_, out_;
  CudaStream transfers_ = nullptr;
  CudaEvent mark_ = nullptr;
  absl::Time kernels_done_ = absl::InfinitePast();  // For the kernels before mark_.
  bool in_is_ahead_ = false;  // True if compute_ does not wait for the latest copies in yet.
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DEVICE_CUDA_DEVICE_H_

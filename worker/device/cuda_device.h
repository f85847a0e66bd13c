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

// A lane's queues on a GPU: one for kernels, one for copies in and one for copies out, ordered
// among each other by events. Copies in wait for nothing that is computed; kernels wait for the
// copies in that were queued before them, copies out for the kernels and copies in that were.
//
// The first fault of the device is kept: every later call returns it.
class CudaDevice final : public Device {
 public:
  // FAILED_PRECONDITION, RESOURCE_EXHAUSTED.
  // `priority`: of its queues beside that for transfers.
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

  // For kernels: where to launch. Ask before every launch, because it makes the queue wait for the
  // copies in before it, and this device the thread's current one.
  absl::StatusOr<CudaStream> Compute();
  // For kernels: parameters (tables of tasks), in the order of launches, by a ring of 4 MiB.
  // `source` may go when it returns.
  absl::Status Upload(std::byte* target, const void* source, int64_t bytes);
  // For communicators: their queue, before the others where both have work; it makes `stream` wait
  // for all that is queued.
  CudaStream transfers() const { return transfers_; }
  absl::Status OrderAfter(CudaStream stream);
  // This device is the thread's current one; OK, or the fault.
  absl::Status MakeCurrent();
  // For whatever calls CUDA itself, launches included. Keeps a fault.
  absl::Status Check(CudaError error, absl::string_view what);

  const std::shared_ptr<CudaContext>& context() const { return context_; }
  CudaPriority priority() const { return priority_; }

 private:
  // Pinned memory through which a copy passes whose host side is not pinned.
  struct Bounce {
    std::shared_ptr<std::byte> memory;
    CudaEvent event = nullptr;
    bool in_use = false;
    Copy2d deliver;  // From here to the host's memory, when the event has come; rows 0: nothing.
  };
  struct Queue {
    CudaStream stream = nullptr;
    CudaEvent reached = nullptr;
    bool used = false;  // Since the last Synchronize.
    std::vector<Bounce> bounces;
    int64_t bounce_bytes = 0;
    size_t next = 0;
  };

  CudaDevice(std::shared_ptr<CudaContext> context, CudaPriority priority)
      : context_(std::move(context)), priority_(priority) {}
  absl::Status Open();
  absl::Status OpenQueue(Queue* queue, int bounces, int64_t bounce_bytes);
  void Close(Queue* queue);
  // What is queued on `later` from now on waits for what is on `earlier`.
  absl::Status Order(Queue* earlier, CudaStream later);
  // In pieces that fit a bounce of the queue.
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
  absl::Time kernels_done_ = absl::InfinitePast();  // Those before mark_.
  bool in_is_ahead_ = false;  // Copies in for which compute_ does not wait yet.
};

}  // namespace annulus

#endif  // ANNULUS_WORKER_DEVICE_CUDA_DEVICE_H_

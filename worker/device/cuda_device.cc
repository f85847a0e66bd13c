#include "worker/device/cuda_device.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/error.h"
#include "base/status_macros.h"
#include "base/steady_time.h"

namespace annulus {
namespace {

constexpr int kBounces = 4;  // For each direction.
constexpr int kUploads = 8;
constexpr int64_t kUploadBytes = int64_t{512} << 10;
// Waits poll for a short time; then they sleep, so that other threads can use the CPU.
constexpr int kBusyQueries = 2000;
constexpr auto kPause = std::chrono::microseconds(20);

// Both sides are host memory. Rows may overlap.
void CopyOnHost(const Copy2d& copy) {
  for (int64_t row = 0; row < copy.rows; ++row) {
    std::memcpy(copy.target + row * copy.target_stride, copy.source + row * copy.source_stride,
                copy.width);
  }
}

Copy2d Piece(const Copy2d& copy, int64_t row, int64_t rows, int64_t column, int64_t width) {
  Copy2d piece = copy;
  piece.target += row * copy.target_stride + column;
  piece.source += row * copy.source_stride + column;
  piece.rows = rows;
  piece.width = width;
  return piece;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(std::shared_ptr<CudaContext> context,
                                                               CudaPriority priority) {
  std::unique_ptr<CudaDevice> device(new CudaDevice(std::move(context), priority));
  RETURN_IF_ERROR(device->Open());
  return device;
}

absl::Status CudaDevice::Open() {
  RETURN_IF_ERROR(MakeCurrent());
  const int64_t bytes = context_->options().bounce_bytes / (2 * kBounces);
  if (bytes < 1) return absl::InvalidArgumentError("no pinned memory for copies");
  RETURN_IF_ERROR(
      Check(context_->api()->StreamCreate(&transfers_, CudaPriority::kTransfers), "a stream"));
  RETURN_IF_ERROR(Check(context_->api()->EventCreate(&mark_), "an event"));
  RETURN_IF_ERROR(OpenQueue(&compute_, kUploads, kUploadBytes));
  RETURN_IF_ERROR(OpenQueue(&in_, kBounces, bytes));
  return OpenQueue(&out_, kBounces, bytes);
}

absl::Status CudaDevice::OpenQueue(Queue* queue, int bounces, int64_t bounce_bytes) {
  CudaApi* const api = context_->api();
  RETURN_IF_ERROR(Check(api->StreamCreate(&queue->stream, priority_), "a stream"));
  RETURN_IF_ERROR(Check(api->EventCreate(&queue->reached), "an event"));
  queue->bounce_bytes = bounce_bytes;
  std::byte* memory = nullptr;
  RETURN_IF_ERROR(Check(api->HostMalloc(&memory, bounces * bounce_bytes), "pinned memory"));
  const std::shared_ptr<std::byte> all(memory, [api](std::byte* p) { (void)api->HostFree(p); });
  for (int i = 0; i < bounces; ++i) {
    Bounce bounce;
    bounce.memory = std::shared_ptr<std::byte>(all, memory + i * bounce_bytes);
    RETURN_IF_ERROR(Check(api->EventCreate(&bounce.event), "an event"));
    queue->bounces.push_back(std::move(bounce));
  }
  return absl::OkStatus();
}

CudaDevice::~CudaDevice() {
  (void)Synchronize();
  for (Queue* queue : {&out_, &in_, &compute_}) Close(queue);
  if (mark_ != nullptr) (void)context_->api()->EventDestroy(mark_);
  if (transfers_ != nullptr) (void)context_->api()->StreamDestroy(transfers_);
}

void CudaDevice::Close(Queue* queue) {
  CudaApi* const api = context_->api();
  for (Bounce& bounce : queue->bounces) (void)api->EventDestroy(bounce.event);
  if (queue->reached != nullptr) (void)api->EventDestroy(queue->reached);
  if (queue->stream != nullptr) (void)api->StreamDestroy(queue->stream);
}

absl::Status CudaDevice::Check(CudaError error, absl::string_view what) {
  if (!fault_.ok()) return fault_;
  const absl::Status status = CudaStatus(context_->api(), error, what);
  if (IsDeviceFault(status)) fault_ = status;
  return status;
}

absl::Status CudaDevice::MakeCurrent() {
  if (!fault_.ok()) return fault_;
  return Check(context_->api()->SetDevice(context_->options().ordinal), "the thread's device");
}

absl::StatusOr<DeviceMemory> CudaDevice::Allocate(int64_t bytes) {
  if (bytes < 0) return absl::InvalidArgumentError(absl::StrCat("cannot allocate ", bytes));
  MemorySlab* const slab = context_->memory();
  if (DeviceMemory memory = slab->Take(bytes); memory != nullptr) return memory;
  return MakeError(absl::StatusCode::kResourceExhausted,
                   absl::StrCat("no device memory for ", bytes, " bytes: ", slab->free_bytes(),
                                " are free, of which ", slab->largest_gap(), " in one piece"),
                   {"OUT_OF_MEMORY", {{"requested_bytes", absl::StrCat(bytes)}}, {}, {}});
}

absl::Status CudaDevice::Order(Queue* earlier, CudaStream later) {
  CudaApi* const api = context_->api();
  RETURN_IF_ERROR(Check(api->EventRecord(earlier->reached, earlier->stream), "an event's record"));
  return Check(api->StreamWait(later, earlier->reached), "a wait for an event");
}

absl::StatusOr<CudaStream> CudaDevice::Compute() {
  RETURN_IF_ERROR(MakeCurrent());
  if (in_is_ahead_) RETURN_IF_ERROR(Order(&in_, compute_.stream));
  in_is_ahead_ = false;
  compute_.used = true;
  return compute_.stream;
}

absl::Status CudaDevice::OrderAfter(CudaStream stream) {
  RETURN_IF_ERROR(Compute().status());
  if (out_.used) RETURN_IF_ERROR(Order(&out_, stream));
  return Order(&compute_, stream);
}

absl::Status CudaDevice::Upload(std::byte* target, const void* source, int64_t bytes) {
  RETURN_IF_ERROR(Compute().status());
  const auto* from = static_cast<const std::byte*>(source);
  return CopyByBounces(&compute_, {target, bytes, from, bytes, bytes, 1}, /*in=*/true);
}

bool CudaDevice::Pinned(const std::byte* data, int64_t stride, const Copy2d& copy) const {
  const MemorySlab* const staging = context_->staging().get();
  if (staging == nullptr || (stride < copy.width && copy.rows > 1)) return false;
  return staging->Holds(data, (copy.rows - 1) * stride + copy.width);
}

absl::Status CudaDevice::CopyIn(const Copy2d& copy) {
  RETURN_IF_ERROR(MakeCurrent());
  if (copy.rows <= 0 || copy.width <= 0) return absl::OkStatus();
  in_.used = in_is_ahead_ = true;
  if (!Pinned(copy.source, copy.source_stride, copy)) return CopyByBounces(&in_, copy, true);
  return Check(context_->api()->CopyAsync(copy, in_.stream), "a copy to the device");
}

absl::Status CudaDevice::CopyOut(const Copy2d& copy) {
  RETURN_IF_ERROR(Compute().status());
  if (copy.rows <= 0 || copy.width <= 0) return absl::OkStatus();
  RETURN_IF_ERROR(Order(&compute_, out_.stream));
  out_.used = true;
  if (!Pinned(copy.target, copy.target_stride, copy)) return CopyByBounces(&out_, copy, false);
  return Check(context_->api()->CopyAsync(copy, out_.stream), "a copy from the device");
}

absl::Status CudaDevice::CopyByBounces(Queue* queue, const Copy2d& copy, bool in) {
  const int64_t most = queue->bounce_bytes;
  for (int64_t column = 0; column < copy.width; column += most) {
    const int64_t width = std::min(most, copy.width - column);
    const int64_t rows = most / width;
    for (int64_t row = 0; row < copy.rows; row += rows) {
      RETURN_IF_ERROR(
          CopyPiece(queue, Piece(copy, row, std::min(rows, copy.rows - row), column, width), in));
    }
  }
  return absl::OkStatus();
}

absl::Status CudaDevice::CopyPiece(Queue* queue, const Copy2d& piece, bool in) {
  ASSIGN_OR_RETURN(Bounce* const bounce, NextBounce(queue));
  std::byte* const packed = bounce->memory.get();
  const Copy2d to{packed, piece.width, piece.source, piece.source_stride, piece.width, piece.rows};
  const Copy2d from{piece.target, piece.target_stride, packed,
                    piece.width,  piece.width,         piece.rows};
  if (in) CopyOnHost(to);
  CudaApi* const api = context_->api();
  RETURN_IF_ERROR(Check(api->CopyAsync(in ? from : to, queue->stream), "a copy"));
  RETURN_IF_ERROR(Check(api->EventRecord(bounce->event, queue->stream), "an event's record"));
  bounce->in_use = true;
  bounce->deliver = in ? Copy2d() : from;
  return absl::OkStatus();
}

absl::StatusOr<CudaDevice::Bounce*> CudaDevice::NextBounce(Queue* queue) {
  Bounce* const bounce = &queue->bounces[queue->next];
  queue->next = (queue->next + 1) % queue->bounces.size();
  if (!bounce->in_use) return bounce;
  RETURN_IF_ERROR(WaitFor(bounce->event));
  CopyOnHost(bounce->deliver);
  bounce->in_use = false;
  return bounce;
}

absl::Status CudaDevice::WaitFor(CudaEvent event) {
  for (int query = 0;; ++query) {
    const CudaError error = context_->api()->EventQuery(event);
    if (error != kCudaNotReady) return Check(error, "the device's work");
    if (query >= kBusyQueries) std::this_thread::sleep_for(kPause);
  }
}

absl::Status CudaDevice::Drain(Queue* queue) {
  if (!queue->used) return absl::OkStatus();
  CudaApi* const api = context_->api();
  RETURN_IF_ERROR(Check(api->EventRecord(queue->reached, queue->stream), "an event's record"));
  RETURN_IF_ERROR(WaitFor(queue->reached));
  for (Bounce& bounce : queue->bounces) {
    if (bounce.in_use) CopyOnHost(bounce.deliver);
    bounce.in_use = false;
  }
  queue->used = false;
  return absl::OkStatus();
}

// The next call returns a fault.
void CudaDevice::MarkKernels() {
  const bool marked =
      MakeCurrent().ok() &&
      Check(context_->api()->EventRecord(mark_, compute_.stream), "an event's record").ok();
  kernels_done_ = marked ? absl::InfiniteFuture() : absl::InfinitePast();
}

absl::Time CudaDevice::KernelsDone() {
  if (kernels_done_ == absl::InfiniteFuture() &&
      context_->api()->EventQuery(mark_) == kCudaSuccess) {
    kernels_done_ = SteadyNow();
  }
  return kernels_done_;
}

absl::Status CudaDevice::Synchronize() {
  RETURN_IF_ERROR(MakeCurrent());
  for (Queue* queue : {&in_, &compute_, &out_}) RETURN_IF_ERROR(Drain(queue));
  in_is_ahead_ = false;
  return absl::OkStatus();
}

}  // namespace annulus

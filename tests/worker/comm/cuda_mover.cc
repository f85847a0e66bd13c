#include "tests/worker/comm/cuda_mover.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace annulus {
namespace {

class CudaMover final : public MessageMover {
 public:
  explicit CudaMover(std::vector<CudaDevice*> devices)
      : devices_(std::move(devices)),
        context_(devices_.front()->context()),
        api_(context_->api()),
        ready_(devices_.size()) {}
  ~CudaMover() override {
    for (CudaEvent event : ready_) {
      if (event != nullptr) (void)api_->EventDestroy(event);
    }
    if (moved_ != nullptr) (void)api_->EventDestroy(moved_);
    if (stream_ != nullptr) (void)api_->StreamDestroy(stream_);
  }

  absl::Status Open() {
    RETURN_IF_ERROR(devices_.front()->MakeCurrent());
    RETURN_IF_ERROR(Ok(api_->StreamCreate(&stream_, CudaPriority::kTransfers)));
    RETURN_IF_ERROR(Ok(api_->EventCreate(&moved_)));
    for (CudaEvent& event : ready_) RETURN_IF_ERROR(Ok(api_->EventCreate(&event)));
    return absl::OkStatus();
  }

  absl::Status BeginStep(int32_t rank) override {
    CudaDevice* const device = devices_[rank];
    RETURN_IF_ERROR(device->OrderAfter(device->transfers()));
    return device->Check(api_->EventRecord(ready_[rank], device->transfers()), "an event's record");
  }

  // Runs on a thread that owns none of the devices, so it makes only CUDA calls.
  absl::Status Move(int32_t source, int32_t target, const std::byte* from, std::byte* to,
                    int64_t bytes) override {
    RETURN_IF_ERROR(Ok(api_->SetDevice(context_->options().ordinal)));
    for (const int32_t rank : {source, target}) {
      RETURN_IF_ERROR(Ok(api_->StreamWait(stream_, ready_[rank])));
    }
    RETURN_IF_ERROR(Ok(api_->CopyAsync({to, bytes, from, bytes, bytes, 1}, stream_)));
    RETURN_IF_ERROR(Ok(api_->EventRecord(moved_, stream_)));
    CudaError error = kCudaNotReady;
    while ((error = api_->EventQuery(moved_)) == kCudaNotReady) std::this_thread::yield();
    return Ok(error);
  }

 private:
  absl::Status Ok(CudaError error) const { return CudaStatus(api_, error, "a message's copy"); }

  const std::vector<CudaDevice*> devices_;
  const std::shared_ptr<CudaContext> context_;
  CudaApi* const api_;
  std::vector<CudaEvent> ready_;  // Events: all work before the open step of each rank.
  CudaEvent moved_ = nullptr;
  CudaStream stream_ = nullptr;
};

}  // namespace

absl::StatusOr<std::shared_ptr<MessageMover>> MakeCudaMover(std::vector<CudaDevice*> devices) {
  if (devices.empty()) return absl::InvalidArgumentError("no devices");
  auto mover = std::make_shared<CudaMover>(std::move(devices));
  RETURN_IF_ERROR(mover->Open());
  return mover;
}

}  // namespace annulus

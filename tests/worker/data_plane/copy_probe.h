#ifndef ANNULUS_TESTS_WORKER_DATA_PLANE_COPY_PROBE_H_
#define ANNULUS_TESTS_WORKER_DATA_PLANE_COPY_PROBE_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "worker/device/host.h"

namespace annulus {

// A host device with hooks before each copy and each allocation, and in Synchronize.
class CopyProbe final : public Device {
 public:
  explicit CopyProbe(
      std::function<void()> before_copy, bool reads_staging = false,
      std::function<absl::Status()> synchronize = [] { return absl::OkStatus(); },
      std::function<void()> before_allocate = [] {})
      : before_copy_(std::move(before_copy)),
        reads_staging_(reads_staging),
        synchronize_(std::move(synchronize)),
        before_allocate_(std::move(before_allocate)) {}

  absl::StatusOr<DeviceMemory> Allocate(int64_t bytes) override {
    before_allocate_();
    return host_->Allocate(bytes);
  }
  absl::Status CopyIn(const Copy2d& copy) override {
    before_copy_();
    return host_->CopyIn(copy);
  }
  absl::Status CopyOut(const Copy2d& copy) override {
    before_copy_();
    return host_->CopyOut(copy);
  }
  bool reads_staging() const override { return reads_staging_; }
  absl::Status Synchronize() override { return synchronize_(); }
  std::string Description() const override { return "probe"; }

 private:
  const std::function<void()> before_copy_;
  const bool reads_staging_;
  const std::function<absl::Status()> synchronize_;
  const std::function<void()> before_allocate_;
  const std::unique_ptr<Device> host_ = MakeHostDevice();
};

}  // namespace annulus

#endif  // ANNULUS_TESTS_WORKER_DATA_PLANE_COPY_PROBE_H_
